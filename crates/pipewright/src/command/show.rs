//! `Debug` and `Display` of a command.

use std::ffi::OsStr;
use std::fmt;

use super::Command;

impl fmt::Debug for Command {
    /// Formats as std does: the program and its arguments in quotes. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.program)?;
        for (index, arg) in self.args.iter().enumerate() {
            if self.secret_args.contains(&index) {
                f.write_str(" ***")?;
            } else {
                write!(f, " {arg:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    /// Formats the command as typed in a shell, on one line. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_word(&self.program, f)?;
        for (index, arg) in self.args.iter().enumerate() {
            f.write_str(" ")?;
            if self.secret_args.contains(&index) {
                f.write_str("***")?;
            } else {
                show_word(arg, f)?;
            }
        }
        Ok(())
    }
}

fn show_word(word: &OsStr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let text = word.to_string_lossy();
    if !text.is_empty() && text.chars().all(plain) {
        return f.write_str(&text);
    }
    if text.chars().any(char::is_control) {
        // $'...' has escapes; plain quotes would break the line.
        return write!(f, "$'{}'", text.escape_default());
    }
    write!(f, "'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn a_command_prints_as_a_shell_would_read_it() {
        let mut command = Command::new("grep");
        command.args(["-n", "it's", "", "a b", "x\ny"]);
        assert_eq!(command.to_string(), r"grep -n 'it'\''s' '' 'a b' $'x\ny'");
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut command = Command::new("login");
        command.arg("--password").secret_arg("hunter2").arg("me");
        assert_eq!(command.to_string(), "login --password *** me");
        assert_eq!(format!("{command:?}"), r#""login" "--password" *** "me""#);
    }
}
