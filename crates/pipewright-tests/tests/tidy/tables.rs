//! Tables in the documents: each has a blank line before it, and as many cells in each row as in its head.

use super::links::documents;
use super::none;

/// Returns the number of cells of a row.
fn cells(row: &str) -> usize {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = row.strip_suffix('|').filter(|rest| !rest.ends_with('\\')).unwrap_or(row);
    // Also in code, a cell ends at a bar without a backslash.
    let bars = row.char_indices().filter(|(at, it)| *it == '|' && !row[..*at].ends_with('\\'));
    bars.count() + 1
}

fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') && line.contains('-') && line.chars().all(|it| "|-: ".contains(it))
}

/// Returns what is wrong with the tables of a text, and their number.
fn wrong_tables(name: &str, text: &str) -> (Vec<String>, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut wrong, mut count, mut is_code) = (Vec::new(), 0, false);
    for (at, line) in lines.iter().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(head) = at.checked_sub(1).map(|at| lines[at]) else { continue };
        if is_code || !is_delimiter(line) {
            continue;
        }
        count += 1;
        if at >= 2 && !lines[at - 2].trim().is_empty() {
            wrong.push(format!("{name}:{at}: no blank line before a table"));
        }
        let rows = lines.iter().enumerate().skip(at).take_while(|(_, row)| row.starts_with('|'));
        wrong.extend(
            rows.filter(|(_, row)| cells(row) != cells(head))
                .map(|(row, text)| format!("{name}:{}: {text}", row + 1)),
        );
    }
    (wrong, count)
}

#[test]
fn every_row_of_a_table_has_the_cells_of_its_head() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, text) in documents() {
        let (found, tables) = wrong_tables(&name, &text);
        wrong.extend(found);
        count += tables;
    }
    none("tables that are not shown as such", wrong);
    assert!(count > 50, "{count}");
}

#[test]
fn wrong_tables_are_found() {
    let right = "text\n\n| a | b |\n|---|---|\n| `x\\|y` | |\n| 1 | 2 |\n";
    assert_eq!(wrong_tables("x", right), (Vec::new(), 1));
    let no_blank = right.replace("text\n\n", "text\n");
    assert_eq!(wrong_tables("x", &no_blank).0.len(), 1);
    let bar = right.replace("\\|", "|");
    assert_eq!(wrong_tables("x", &bar).0, ["x:5: | `x|y` | |"]);
    assert_eq!(wrong_tables("x", &format!("```\n{bar}```\n")), (Vec::new(), 0));
}
