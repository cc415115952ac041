//! Text of jobs for people: safe for a terminal, cut to a width, and figures in words.

use std::fmt::Write as _;
use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use crate::vocabulary::AttemptOutcome;

/// Returns the number of columns that a terminal uses for a text without controls.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Returns true for a character that could change more of a line than its own place.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a text on one line of at most that many columns. Controls are escaped, and a cut is marked by `…`.
pub(crate) fn line(text: &str, most: usize) -> String {
    let mut shown = String::new();
    // The length of the longest part with which the mark of a cut fits.
    let (mut used, mut fits) = (0, 0);
    let mut piece = String::new();
    for character in text.trim_end().chars() {
        piece.clear();
        if is_control(character) {
            // Writing to a String does not fail.
            let _ = write!(piece, "{}", character.escape_default());
        } else {
            piece.push(character);
        }
        if used < most {
            fits = shown.len();
        }
        used += columns(&piece);
        if used > most {
            shown.truncate(fits);
            if most > 0 {
                shown.push('…');
            }
            return shown;
        }
        shown.push_str(&piece);
    }
    shown
}

/// Cuts a text after that many bytes, between characters. A cut is marked by `…`.
pub(crate) fn cut(text: &str, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text.to_owned();
    }
    let end = (0..=most_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or(""))
}

/// Formats a duration with two or three digits: `1.2 ms`, `12 ms`, `3.2 s`, `47 s`, `4 min 10 s`, `2 h 05 min`, `3 d 4
/// h`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 0.00995 => format!("{:.1} ms", s * 1e3),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1} s"),
        _ => whole_duration(time),
    }
}

/// Formats a duration in whole seconds.
pub(crate) fn whole_duration(time: Duration) -> String {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_millis() >= 500));
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {:02} s", seconds % 60),
        3600..86_400 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// Formats a rate: `0.20/s`, `3.4/s`, `304/s`.
pub(crate) fn rate(per_second: f64) -> String {
    let decimals = match per_second {
        rate if rate < 0.995 => 2,
        rate if rate < 9.95 => 1,
        _ => 0,
    };
    format!("{per_second:.decimals$}/s")
}

/// Returns the end of an attempt in words.
pub(crate) fn outcome(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Exited(code) => format!("exit {code}"),
        AttemptOutcome::Signaled(_) => outcome.signal_name().unwrap_or_default(),
        AttemptOutcome::NotStarted(reason) => format!("not started: {}", line(reason, 200)),
        AttemptOutcome::Lost(reason) => format!("lost: {}", line(reason, 200)),
        other => other.name().replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controls_are_escaped_and_long_text_is_cut() {
        assert_eq!(line("a\tb\x1b[31m\u{202e}c\r\n", 80), r"a\tb\u{1b}[31m\u{202e}c");
        assert_eq!(line("abcdef", 6), "abcdef");
        assert_eq!(line("abcdefg", 6), "abcde…");
        assert_eq!(line("日本語", 6), "日本語");
        assert_eq!(line("日本語", 5), "日本…");
        assert_eq!(line("日本語", 4), "日…");
        assert_eq!(line("abc", 1), "…");
        assert_eq!(line("abc", 0), "");
        assert_eq!(cut("é".repeat(10).as_str(), 5), "éé…");
    }

    #[test]
    fn durations_and_rates_have_few_digits() {
        let shown = |seconds: f64| duration(Duration::from_secs_f64(seconds));
        assert_eq!(shown(0.0), "0 s");
        assert_eq!(shown(0.0012), "1.2 ms");
        assert_eq!(shown(0.0123), "12 ms");
        assert_eq!(shown(0.9996), "1.0 s");
        assert_eq!(shown(3.21), "3.2 s");
        assert_eq!(shown(9.96), "10 s");
        assert_eq!(shown(59.6), "1 min 00 s");
        assert_eq!(shown(250.0), "4 min 10 s");
        assert_eq!(shown(7500.0), "2 h 05 min");
        assert_eq!(shown(270_000.0), "3 d 3 h");
        assert_eq!([0.2, 3.42, 303.7].map(rate), ["0.20/s", "3.4/s", "304/s"]);
        assert!(!duration(Duration::MAX).is_empty());
    }

    #[test]
    fn ends_are_words() {
        assert_eq!(outcome(&AttemptOutcome::Exited(3)), "exit 3");
        assert_eq!(outcome(&AttemptOutcome::TimedOut), "timed out");
        assert_eq!(
            outcome(&AttemptOutcome::NotStarted("no\nfile".into())),
            r"not started: no\nfile"
        );
    }

    proptest! {
        #[test]
        fn a_line_is_never_wider_than_asked_and_has_no_controls(
            text in "\\PC{0,40}|.{0,40}|[\u{0}-\u{1f}a日]{0,40}",
            most in 0_usize..50,
        ) {
            let shown = line(&text, most);
            prop_assert!(columns(&shown) <= most, "{shown:?}");
            prop_assert!(!shown.chars().any(is_control), "{shown:?}");
        }
    }
}
