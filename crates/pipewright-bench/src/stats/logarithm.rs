//! Logarithms without the C library's `libm`, which std calls: every command of the tool would load it at startup.
//! Drawings also come out the same on every system.

use std::f64::consts::{LN_2, LOG10_2, SQRT_2};

/// Returns the logarithm to base 2. Zero and negative numbers count as the smallest positive number.
pub(crate) fn log2(value: f64) -> f64 {
    const MANTISSA_BITS: u32 = 52;
    const BIAS: i64 = 1023;
    // Subnormal numbers have another format.
    let bits = value.max(f64::MIN_POSITIVE).to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - BIAS;
    let mantissa_mask = (1_u64 << MANTISSA_BITS) - 1;
    let mut mantissa = f64::from_bits(bits & mantissa_mask | (BIAS as u64) << MANTISSA_BITS);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), whose argument is at most 0.172: eleven terms are exact to about a bit.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = (0..11).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent as f64 + 2.0 * ratio * series / LN_2
}

/// Returns the natural logarithm.
pub(crate) fn ln(value: f64) -> f64 {
    log2(value) * LN_2
}

/// Returns a power of ten.
pub(crate) fn power_of_ten(exponent: i32) -> f64 {
    let power = (0..exponent.unsigned_abs()).fold(1.0, |power, _| power * 10.0);
    if exponent < 0 { 1.0 / power } else { power }
}

/// Returns the exponent of the largest power of ten that is not above the value, with a tolerance for rounding.
pub(crate) fn exponent_of_ten(value: f64) -> i32 {
    let value = value.max(f64::MIN_POSITIVE) * (1.0 + 1e-12);
    let mut exponent = (log2(value) * LOG10_2).floor() as i32;
    if power_of_ten(exponent) > value {
        exponent -= 1;
    }
    if power_of_ten(exponent + 1) <= value {
        exponent += 1;
    }
    exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_exact() {
        for exponent in -60..60 {
            assert_eq!(log2(2_f64.powi(exponent)), f64::from(exponent));
        }
        for exponent in -30..30 {
            assert_eq!(exponent_of_ten(10_f64.powi(exponent)), exponent, "{exponent}");
            assert_eq!(exponent_of_ten(10_f64.powi(exponent) * 9.99), exponent, "{exponent}");
            let power = power_of_ten(exponent) / 10_f64.powi(exponent);
            assert!((power - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn numbers_without_a_logarithm_get_the_smallest_one() {
        for value in [0.0, -1.0, f64::MIN_POSITIVE / 4.0, f64::NAN] {
            assert_eq!(log2(value), -1022.0, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn logarithms_agree_with_std(value in 1e-300..1e300_f64) {
            assert!((log2(value) - value.log2()).abs() < 1e-12 * value.log2().abs().max(1.0));
            assert!((ln(value) - value.ln()).abs() < 1e-12 * value.ln().abs().max(1.0));
        }

        #[test]
        fn logarithms_near_1_agree_with_std(value in 0.5..2.0_f64) {
            assert!((log2(value) - value.log2()).abs() < 1e-15);
        }
    }
}
