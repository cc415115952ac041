//! Parsers for tests: they split texts as Windows does, and are written from the documentation,
//! independently of the code that builds the texts.

use super::wide;

/// A set of rules for command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotingRules {
    /// `CommandLineToArgvW`: two quotes within quotes mean one, and end the quoting.
    Shell,
    /// Microsoft's C library since 2008: two quotes within quotes mean one, and the quoting continues.
    C,
}

/// Returns the arguments in a command line, the program's name first.
pub(crate) fn split(line: &[u16], rules: QuotingRules) -> Vec<Vec<u16>> {
    let text: Vec<u32> = line.iter().map(|unit| u32::from(*unit)).collect();
    let at = |index: usize| text.get(index).copied();
    let is = |index: usize, character: char| at(index) == Some(character as u32);
    let gap = |index: usize| is(index, ' ') || is(index, '\t');
    let mut args = Vec::new();

    // In the name nothing is escaped.
    let mut index = 0;
    let mut name = Vec::new();
    if is(0, '"') {
        index = 1;
        while index < text.len() && !is(index, '"') {
            name.push(line[index]);
            index += 1;
        }
        index += 1;
    } else {
        while index < text.len() && !gap(index) {
            name.push(line[index]);
            index += 1;
        }
    }
    args.push(name);

    loop {
        while gap(index) {
            index += 1;
        }
        if index >= text.len() {
            return args;
        }
        let mut arg = Vec::new();
        let mut quoted = false;
        while index < text.len() && (quoted || !gap(index)) {
            let start = index;
            while is(index, '\\') {
                index += 1;
            }
            let backslashes = index - start;
            if !is(index, '"') {
                arg.extend(wide(&"\\".repeat(backslashes)));
                if index < text.len() && (quoted || !gap(index)) {
                    arg.push(line[index]);
                    index += 1;
                }
                continue;
            }
            arg.extend(wide(&"\\".repeat(backslashes / 2)));
            if backslashes % 2 == 1 {
                arg.push(line[index]);
                index += 1;
            } else if quoted && is(index + 1, '"') {
                arg.push(line[index]);
                quoted = rules == QuotingRules::C;
                index += 2;
            } else {
                quoted = !quoted;
                index += 1;
            }
        }
        args.push(arg);
    }
}

/// Returns the line that `cmd.exe /c` executes for a command; an error if a part of it would be more than
/// an argument. `%CD%` is the only variable that exists.
pub(crate) fn cmd(command: &[u16]) -> Result<Vec<u16>, String> {
    let text = String::from_utf16_lossy(command);
    // With more than two quotes, the first and the last are removed (cmd /?).
    let inner = text.strip_prefix('"').ok_or("no quote at its start")?;
    let (inner, rest) = inner.rsplit_once('"').ok_or("no quote at its end")?;
    if !rest.is_empty() {
        return Err(format!("{rest:?} after the last quote"));
    }
    let expanded = expand(inner)?;
    let mut quoted = false;
    for character in expanded.chars() {
        match character {
            '"' => quoted = !quoted,
            '\n' | '\r' | '\0' => return Err("a line ends in it".to_owned()),
            '&' | '|' | '<' | '>' | '^' | '(' | ')' | '!' if !quoted => {
                return Err(format!("{character:?} outside of quotes"));
            }
            _ => {}
        }
    }
    if quoted {
        return Err("a quote is left open".to_owned());
    }
    Ok(expanded.encode_utf16().collect())
}

/// Expands variables, as on the command line: a variable that is not set stays as it is.
fn expand(text: &str) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.find('%').map(|end| &rest[..end]) {
            Some("cd:~,") => rest = &rest["cd:~,%".len()..],
            Some(name) if !name.is_empty() => return Err(format!("%{name}% is expanded")),
            _ => expanded.push('%'),
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Returns `%0`, `%1` ... of a batch file, including quotes.
pub(crate) fn parameters(line: &[u16]) -> Vec<String> {
    let mut parameters = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for character in String::from_utf16_lossy(line).chars() {
        let parts =
            matches!(character, ' ' | '\t' | ',' | ';' | '=' | '\u{b}' | '\u{c}' | '\u{a0}');
        if parts && !quoted {
            if !current.is_empty() {
                parameters.push(std::mem::take(&mut current));
            }
            continue;
        }
        quoted ^= character == '"';
        current.push(character);
    }
    if !current.is_empty() {
        parameters.push(current);
    }
    parameters
}

#[test]
fn the_oracle_knows_the_documented_examples() {
    let args = |line: &str, rules| -> Vec<String> {
        let args = split(&wide(line), rules);
        args.into_iter().skip(1).map(|arg| String::from_utf16(&arg).unwrap()).collect()
    };
    // "Parsing C command-line arguments", Results of command-line parsing examples.
    for rules in [QuotingRules::Shell, QuotingRules::C] {
        assert_eq!(args(r#"p "a b c" d e"#, rules), ["a b c", "d", "e"]);
        assert_eq!(args(r#"p "ab\"c" "\\" d"#, rules), [r#"ab"c"#, r"\", "d"]);
        assert_eq!(args(r#"p a\\\b d"e f"g h"#, rules), [r"a\\\b", "de fg", "h"]);
        assert_eq!(args(r#"p a\\\"b c d"#, rules), [r#"a\"b"#, "c", "d"]);
        assert_eq!(args(r#"p a\\\\"b c" d e"#, rules), [r"a\\b c", "d", "e"]);
    }
    assert_eq!(args(r#"p "a b"" c d"#, QuotingRules::C), [r#"a b" c d"#]);
    assert_eq!(args(r#"p "a b"" c d"#, QuotingRules::Shell), [r#"a b""#, "c", "d"]);
}

#[test]
fn the_oracle_sees_an_attack() {
    assert!(cmd(&wide(r#"""x" & calc""#)).is_err());
    assert!(cmd(&wide(r#"""x" "%PATH%"""#)).is_err());
    assert!(cmd(&wide(r#"""x" "a"&calc""""#)).is_err());
    assert!(cmd(&wide(r#"""x" "a"&calc"""#)).is_err());
    assert!(cmd(&wide(r#"""x" "a""&calc"""#)).is_ok());
    assert!(cmd(&wide(r#"""x" %%cd:~,%PATH%%cd:~,%""#)).is_ok());
}
