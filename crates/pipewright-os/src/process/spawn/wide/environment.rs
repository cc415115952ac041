//! The environment as one block.

use std::cmp::Ordering;

use super::unit;

/// A variable's name and value.
pub(crate) type Variable = (Vec<u16>, Vec<u16>);

/// Returns the block: each variable as `name=value` and a NUL, in the order of the names, and another NUL.
/// If several have the same name, the last counts.
///
/// Drive variables (`=C:`, the working directory of another drive) have names like others.
pub(crate) fn block(
    mut variables: Vec<Variable>,
    compare: impl Fn(&[u16], &[u16]) -> Ordering,
) -> Vec<u16> {
    // A stable sort, so that the last stays the last. Programs expect a sorted block.
    variables.sort_by(|one, other| compare(&one.0, &other.0));
    let units = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    let mut block = Vec::with_capacity(units + 2);
    let mut rest = variables.iter().peekable();
    while let Some((name, value)) = rest.next() {
        if rest.peek().is_some_and(|(next, _)| compare(name, next).is_eq()) {
            continue;
        }
        block.extend_from_slice(name);
        block.push(unit('='));
        block.extend_from_slice(value);
        block.push(0);
    }
    if block.is_empty() {
        // A block without variables has an empty one.
        block.push(0);
    }
    block.push(0);
    block
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wide;
    use super::*;

    fn capitals(text: &[u16]) -> String {
        String::from_utf16_lossy(text).to_uppercase()
    }

    fn compare(one: &[u16], other: &[u16]) -> Ordering {
        capitals(one).cmp(&capitals(other))
    }

    fn made(variables: &[(&str, &str)]) -> String {
        let variables = variables.iter().map(|(name, value)| (wide(name), wide(value))).collect();
        String::from_utf16(&block(variables, compare)).unwrap()
    }

    #[test]
    fn variables_are_sorted_and_the_last_of_a_name_counts() {
        let variables = [("b", "1"), ("PATH", "x"), ("=C:", r"C:\y"), ("Path", "z"), ("A", "")];
        assert_eq!(made(&variables), "=C:=C:\\y\0A=\0b=1\0Path=z\0\0");
    }

    #[test]
    fn an_empty_environment_is_an_empty_string() {
        assert_eq!(made(&[]), "\0\0");
    }

    proptest! {
        #[test]
        fn the_block_holds_each_variable_once(
            variables in prop::collection::vec(("[a-cA-C]{1,3}", "[^\0]{0,5}"), 0..12),
        ) {
            let wide_ones = variables.iter().map(|(name, value)| (wide(name), wide(value)));
            let block = block(wide_ones.collect(), compare);
            let text = String::from_utf16(&block).unwrap();
            let body = text.strip_suffix("\0\0").unwrap();
            let mut last = std::collections::BTreeMap::new();
            for (name, value) in &variables {
                last.insert(name.to_uppercase(), format!("{name}={value}"));
            }
            let expected: Vec<String> = last.into_values().collect();
            let found: Vec<&str> = body.split('\0').filter(|entry| !entry.is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
