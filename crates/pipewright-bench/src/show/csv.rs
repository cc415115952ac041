//! A report as CSV: one line per sample.

use std::fmt::Write as _;

use crate::report::BenchReport;
use crate::units::Unit;

/// Returns the samples (RFC 4180).
pub(crate) fn csv(report: &BenchReport) -> String {
    let mut text = String::from("chart,curve,case,block_bytes,series,value,unit\r\n");
    for chart in &report.charts {
        let unit = match chart.unit {
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Seconds => "seconds",
        };
        for curve in &chart.curves {
            for cell in &curve.cells {
                let bytes = cell.block_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
                for (series, value) in cell.samples.iter().enumerate() {
                    let [chart, curve, case] =
                        [&chart.id, &curve.name, &cell.label].map(|it| quoted(it));
                    let series = series + 1;
                    // Writing to a String does not fail.
                    let _ =
                        write!(text, "{chart},{curve},{case},{bytes},{series},{value},{unit}\r\n");
                }
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn separators_are_quoted() {
        assert_eq!(quoted("two threads, pipe"), "\"two threads, pipe\"");
        assert_eq!((quoted("a\"b").as_str(), quoted("a b").as_str()), ("\"a\"\"b\"", "a b"));
    }
}
