//! Tests of quoting, with the real `sh`. `source::tests` reads quoted lines back with our own rules.

use std::ffi::OsString;

use crate::job::shell_quoted;

fn quoted(words: &[&str]) -> String {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    String::from_utf8(shell_quoted(&words)).unwrap()
}

#[test]
fn plain_words_stay_and_others_are_quoted() {
    assert_eq!(quoted(&["gzip", "-9", "a/b.c", "k=v"]), "gzip -9 a/b.c k=v");
    assert_eq!(
        quoted(&["a b", "", "it's", "x*", "\n"]),
        r"'a b' '' 'it'\''s' 'x*' '".to_owned() + "\n'"
    );
    assert_eq!(quoted(&["~", "#", "a{b,c}", "\u{e9}"]), "'~' '#' 'a{b,c}' '\u{e9}'");
}

#[test]
fn a_first_word_with_a_meaning_is_quoted() {
    assert_eq!(quoted(&["A=1", "A=1"]), "'A=1' A=1");
    assert_eq!(quoted(&["if", "if"]), "'if' if");
    assert_eq!(quoted(&[]), "");
}

#[cfg(unix)]
mod sh {
    use std::process::{Command, Output};

    use proptest::prelude::*;

    use super::*;

    fn sh(line: Vec<u8>) -> Output {
        let line = String::from_utf8(line).unwrap();
        let mut sh = Command::new("/bin/sh");
        sh.args(["-c", &line]).env("PATH", "").output().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn sh_reads_the_same_words(words in crate::job::tests::quote::words()) {
            let mut line = br"printf '%s\0' ".to_vec();
            line.extend(shell_quoted(&words));
            let output = sh(line);
            prop_assert!(output.status.success());
            let expected: Vec<u8> =
                words.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
            prop_assert_eq!(output.stdout, expected);
        }
    }

    #[test]
    fn sh_takes_every_first_word_for_a_command() {
        let others = [&b"A=b"[..], b"!", b"{", b"}", b"[[", b"#a", b"~"];
        for word in super::super::RESERVED.iter().chain(&others) {
            let word = String::from_utf8(word.to_vec()).unwrap();
            let output = sh(shell_quoted(&[word.clone().into(), "x".into()]));
            // Not found. A reserved word is a syntax error, and an assignment or a comment a success.
            assert_eq!(output.status.code(), Some(127), "{word}: {output:?}");
        }
    }
}

/// Returns words that a shell could misread.
#[cfg(unix)]
fn words() -> impl proptest::strategy::Strategy<Value = Vec<OsString>> {
    use proptest::prelude::*;
    let word = prop_oneof!["[ -~\\t\\n]{0,8}", "['\"\\\\ \\n$`a]{0,8}", "\\PC{0,4}"];
    prop::collection::vec(word.prop_map(OsString::from), 1..6)
}
