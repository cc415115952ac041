//! Medians and what lies around them.

/// The middle of several figures, and the range they lie in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// All zero where there are no figures.
    pub(crate) fn of(figures: &[f64]) -> Spread {
        Spread {
            median: median(figures),
            least: quantile(figures, 0.0),
            most: quantile(figures, 1.0),
        }
    }
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

/// The figure below which that share of all lies, between the two nearest in proportion.
pub(crate) fn quantile(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * last as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.1), 1.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_spread_has_its_ends() {
        let spread = Spread::of(&[5.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, most: 5.0 });
    }
}
