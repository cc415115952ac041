//! `--user`: names and numbers of users and groups, from `/etc/passwd` and `/etc/group`.

use std::fs;

use pipewright::Command;

use crate::Failure;

/// A user with groups.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    id: u32,
    group: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
}

impl User {
    /// Finds `USER` or `USER:GROUP`: names, or numbers.
    pub(super) fn find(text: &str) -> Result<User, Failure> {
        User::find_in(text, &read("/etc/passwd"), &read("/etc/group")).map_err(Failure)
    }

    pub(super) fn set(&self, command: &mut Command) {
        command.uid(self.id).gid(self.group).groups(&self.groups);
    }

    fn find_in(text: &str, users: &str, groups: &str) -> Result<User, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        // passwd(5): name, password, id, group. group(5): name, password, id, members.
        let entry = fields(users).find(|entry| entry.first() == Some(&user));
        let entry = entry.or_else(|| fields(users).find(|entry| entry.get(2) == Some(&user)));
        let number = |entry: &Vec<&str>, at: usize| entry.get(at).and_then(|id| id.parse().ok());
        let id: Option<u32> =
            entry.as_ref().and_then(|entry| number(entry, 2)).or(user.parse().ok());
        let id = id.ok_or_else(|| {
            format!("invalid --user {text:?}: /etc/passwd has no user {user:?}; a number works too")
        })?;
        let Some(group) = group else {
            let group = entry.as_ref().and_then(|entry| number(entry, 3)).ok_or_else(|| {
                format!("invalid --user {text:?}: the user has no group in /etc/passwd; write USER:GROUP")
            })?;
            let name = entry.and_then(|entry| entry.first().copied()).unwrap_or_default();
            let is_member = |entry: &Vec<&str>| {
                entry.get(3).is_some_and(|members| members.split(',').any(|member| member == name))
            };
            let mut all: Vec<u32> =
                fields(groups).filter(is_member).filter_map(|entry| number(&entry, 2)).collect();
            all.retain(|other| *other != group);
            all.push(group);
            return Ok(User { id, group, groups: all });
        };
        let named = fields(groups).find(|entry| entry.first() == Some(&group));
        let number = named.and_then(|entry| number(&entry, 2)).or(group.parse().ok());
        let group = number.ok_or_else(|| {
            format!(
                "invalid --user {text:?}: /etc/group has no group {group:?}; a number works too"
            )
        })?;
        Ok(User { id, group, groups: vec![group] })
    }
}

/// Returns the text of the file, or nothing if it cannot be read: then only numbers can be found.
fn read(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::User;

    const USERS: &str =
        "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\n1000:x:7:7::/:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:ann\nwheel:x:10:root,ann\naudio:x:29:bob\n";

    fn find(text: &str) -> Result<User, String> {
        User::find_in(text, USERS, GROUPS)
    }

    #[test]
    fn a_user_has_a_name_or_a_number_and_its_groups() {
        let user = |id, group, groups: &[u32]| Ok(User { id, group, groups: groups.to_vec() });
        assert_eq!(find("ann"), user(1000, 100, &[10, 100]));
        assert_eq!(find("root"), user(0, 0, &[10, 0]));
        assert_eq!(find("ann:audio"), user(1000, 29, &[29]));
        assert_eq!(find("ann:5"), user(1000, 5, &[5]));
        assert_eq!(find("4242:4343"), user(4242, 4343, &[4343]));
        assert_eq!(find("0"), user(0, 0, &[10, 0]));
        // A name comes before a number.
        assert_eq!(find("1000"), user(7, 7, &[7]));
    }

    #[test]
    fn an_unknown_user_or_group_is_an_error() {
        for (text, words) in [
            ("bob", "no user \"bob\""),
            ("", "no user \"\""),
            ("ann:nobody", "no group \"nobody\""),
            ("4242", "write USER:GROUP"),
            ("-1:0", "no user \"-1\""),
        ] {
            let error = find(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
