//! Bytes that are mostly text, and times, in JSON.

use std::time::Duration;

use serde_json::{Map, Value};

/// Returns a string, or an object with the bytes in hexadecimal if they are not UTF-8.
pub(super) fn value_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => Value::Object(Map::from_iter([("hex".to_owned(), hex(bytes).into())])),
    }
}

pub(super) fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Object(mut fields) if fields.len() == 1 => {
            unhex(fields.remove("hex")?.as_str().unwrap_or("?"))
        }
        _ => None,
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Returns a time as text, because a JSON number would round it.
pub(super) fn seconds(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        nanos => {
            let fraction = format!("{nanos:09}");
            format!("{}.{}s", time.as_secs(), fraction.trim_end_matches('0'))
        }
    }
}

pub(super) fn duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    Some(Duration::new(whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?))
}
