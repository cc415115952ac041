//! Conversations with programs: `cargo run -p pipewright --features regex,screen --example session`.

use std::error::Error;
use std::time::Duration;

use pipewright::{Command, ErrorKind, Key, Pattern, Session};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    calculate()?;
    answer_a_password_prompt()?;
    explain_a_failure()?;
    Ok(())
}

/// Drives an interpreter.
fn calculate() -> Result<(), Box<dyn Error>> {
    let loops = "while printf 'calc> ' && read sum; do echo \"= $(($sum))\"; done; echo bye";
    let mut session = Session::spawn(Command::new("sh").args(["-c", loops]))?;
    for (sum, wanted) in [("6 * 7", "42"), ("1 << 10", "1024")] {
        session.expect("calc> ")?;
        session.send_line(sum)?;
        let found = session.expect(Pattern::regex(r"= (\d+)\r\n")?)?;
        assert_eq!(found.group(1), Some(wanted.as_bytes()));
    }
    session.expect("calc> ")?;
    session.send_key(Key::Ctrl('d'))?;
    session.expect("bye")?;
    assert!(session.wait()?.success());
    println!("calculated");
    Ok(())
}

/// Types a password, once the program has switched the echo off.
fn answer_a_password_prompt() -> Result<(), Box<dyn Error>> {
    let prompt = "printf 'password: '; stty -echo; read word; stty echo; echo; \
                  test \"$word\" = secret && echo welcome || echo denied";
    let mut session = Session::spawn(Command::new("sh").args(["-c", prompt]))?;
    session.expect("password: ")?;
    session.expect_no_echo()?;
    session.send_line("secret")?;
    let found = session.expect_any(["welcome", "denied"])?;
    assert_eq!(found.index, 0);
    assert!(!found.before_text().contains("secret"));
    println!("logged in");
    Ok(())
}

/// Reports what the program showed when it did not show what was expected.
fn explain_a_failure() -> Result<(), Box<dyn Error>> {
    let mut session =
        Session::spawn(Command::new("sh").args(["-c", "echo no route to host; exit 1"]))?;
    session.set_timeout(Duration::from_secs(10));
    let Err(error) = session.expect("password: ") else { return Err("a prompt".into()) };
    let ErrorKind::NotSeen { tail, .. } = error.kind() else { return Err(error.into()) };
    assert_eq!(tail, "no route to host\n");
    println!("{error}");
    Ok(())
}
