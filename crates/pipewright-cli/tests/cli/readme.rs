//! The picture of the README shows what the tool prints.

use std::process::Command;

use super::{out, pace};

#[test]
fn the_picture_shows_what_the_tool_prints() {
    if Command::new("jq").arg("--version").output().is_err() {
        pace::skipped(pace::Need::Program("jq"), "there is no jq here, which the picture has");
        return;
    }
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.svg");
    let Ok(picture) = std::fs::read_to_string(picture) else {
        pace::skipped(pace::Need::File("docs/run.svg"), "the package has no picture");
        return;
    };
    let lines: Vec<String> = picture
        .lines()
        .filter_map(|line| {
            let line = line.trim_start().strip_prefix("<text ")?;
            let text = line.split_once('>')?.1.strip_suffix("</text>")?;
            let text = text.replace("<tspan class=\"p\">", "").replace("</tspan>", "");
            Some(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        })
        .collect();
    let is_typed = |line: &&String| line.starts_with("$ ");
    let typed = lines.iter().filter(is_typed).map(|line| line.trim_start_matches("$ "));
    let script: Vec<&str> = ["exec 2>&1"].into_iter().chain(typed).collect();
    assert!(script.len() > 4, "{script:?}");
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("pipewright");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pipewright"), tool).unwrap();
    let path = format!("PATH={}:$PATH\n", folder.path().display());
    let mut command = Command::new("sh");
    command.args(["-c", &(path + &script.join("\n"))]).current_dir(&folder);
    let output = command.output().unwrap();
    let shown: Vec<&String> = lines.iter().filter(|line| !is_typed(line)).collect();
    assert_eq!(out(&output).lines().collect::<Vec<_>>(), shown);
}
