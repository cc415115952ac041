//! An option whose value is one of a few names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Returns a parser of names, with a help text for each value.
pub(super) fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let possible =
        choices.iter().map(move |(value, help)| PossibleValue::new(name(*value)).help(*help));
    PossibleValuesParser::new(possible).try_map(move |typed| {
        let found = choices.iter().map(|(value, _)| *value).find(|value| name(*value) == typed);
        // Never: clap has compared the name with these.
        found.ok_or("it is not one of the names")
    })
}
