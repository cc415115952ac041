//! The arrows between the modules of a crate: which module uses which, by the paths in their files.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::{none, sources};

/// The rooms of the platform crate, and the rooms that each may use.
const ROOMS: [(&str, &[&str]); 5] = [
    ("base", &[]),
    ("host", &["base"]),
    ("process", &["base"]),
    ("channel", &["base", "process"]),
    ("disk", &["base", "host"]),
];

/// The crates whose top-level modules have no circle. A crate that has got rid of its own belongs here.
const WITHOUT_CIRCLES: [&str; 8] = [
    "pipewright",
    "pipewright-batch",
    "pipewright-bench",
    "pipewright-cli",
    "pipewright-cluster",
    "pipewright-disk",
    "pipewright-ipc",
    "pipewright-tests",
];

/// An arrow, from the first to the second, and the files that draw it.
type Arrows = BTreeMap<(String, String), Vec<String>>;

/// Returns the arrows between the modules of a crate that are that many folders deep.
fn arrows(name: &str, depth: usize) -> Arrows {
    let folder = format!("crates/{name}/src");
    let files = sources(&folder).into_iter().map(|(file, text)| {
        let module = module_of(file.strip_prefix(&folder).unwrap_or(&file));
        SourceFile::new(file, module, &text)
    });
    let mut files: Vec<SourceFile> = files.collect();
    let tests: Vec<Path> = files.iter().flat_map(|it| it.test_modules.clone()).collect();
    files.retain(|file| !tests.iter().any(|test| file.module.starts_with(test)));
    // A folder without a `mod.rs` has a file of its name beside it, so that each is in this set.
    let modules: HashSet<Path> = files.iter().map(|file| file.module.clone()).collect();
    let is_module = |path: &[String]| modules.contains(path);
    let named: Vec<_> = files.iter().map(|file| (file, file.named(&is_module))).collect();
    // Modules above that depth only re-export: a name of theirs means the exported item.
    let outer = named.iter().filter(|(file, _)| file.module.len() < depth);
    let exports: HashMap<Path, Path> = outer
        .flat_map(|(file, named)| {
            let full = |name: &String| [&file.module[..], std::slice::from_ref(name)].concat();
            named.imports.iter().map(move |(name, path)| (full(name), path.clone()))
        })
        .collect();
    let mut arrows = Arrows::new();
    for (file, named) in named.iter().filter(|(file, _)| file.module.len() >= depth) {
        let from = file.module[..depth].join("::");
        for path in &named.paths {
            let Some(to) = target(path, depth, &is_module, &exports) else { continue };
            let drawn_by: &mut Vec<String> = arrows.entry((from.clone(), to)).or_default();
            if !drawn_by.contains(&file.file) {
                drawn_by.push(file.file.clone());
            }
        }
    }
    arrows.retain(|(from, to), _| from != to);
    arrows
}

/// Returns the module that a path leads into, or `None` if there is none of that depth.
fn target(
    path: &[String],
    depth: usize,
    is_module: &dyn Fn(&[String]) -> bool,
    exports: &HashMap<Path, Path>,
) -> Option<String> {
    let module = path.get(..depth)?;
    if is_module(module) {
        return Some(module.join("::"));
    }
    let export = (1..=depth).find_map(|length| exports.get(&path[..length]))?;
    // An export of an export is followed once more; one that leads to itself ends here.
    (export[..] != *path).then(|| target(export, depth, is_module, &HashMap::new()))?
}

/// Returns the module that a file holds, from its name below `src`.
fn module_of(file: &str) -> Path {
    let file = file.trim_start_matches('/').trim_end_matches(".rs");
    let mut parts: Path = file.split('/').map(str::to_owned).collect();
    let is_root = |last: &String| matches!(last.as_str(), "mod" | "lib" | "main");
    if parts.last().is_some_and(is_root) {
        parts.pop();
    }
    parts
}

/// Returns a circle for each set of modules that are in one, with the files that draw it.
fn circles(arrows: &Arrows) -> Vec<String> {
    let nodes: HashSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let mut circles = BTreeMap::new();
    for node in nodes {
        let Some(circle) = shortest_circle(node, arrows) else { continue };
        let mut members = circle.clone();
        members.sort_unstable();
        let steps = circle.iter().zip(circle.iter().cycle().skip(1)).map(|(from, to)| {
            let files = arrows[&((*from).clone(), (*to).clone())].join(", ");
            format!("  {from} -> {to} ({files})\n")
        });
        circles.insert(members, steps.collect());
    }
    circles.into_values().collect()
}

/// Returns the modules of the shortest circle through that one.
fn shortest_circle<'a>(start: &'a String, arrows: &'a Arrows) -> Option<Vec<&'a String>> {
    let mut waiting = VecDeque::from([vec![start]]);
    let mut seen = HashSet::new();
    while let Some(way) = waiting.pop_front() {
        let last = way.last()?;
        for (_, to) in arrows.keys().filter(|(from, _)| from == *last) {
            if to == start {
                return Some(way);
            }
            if seen.insert(to) {
                waiting.push_back([&way[..], &[to]].concat());
            }
        }
    }
    None
}

#[test]
fn rooms_of_the_platform_crate_use_only_lower_rooms() {
    let mut offenders = Vec::new();
    for ((from, to), files) in arrows("pipewright-os", 1) {
        let row = ROOMS.iter().find(|(room, _)| *room == from);
        if !row.is_some_and(|(_, below)| below.contains(&to.as_str())) {
            offenders.push(format!("{from} -> {to}: {}", files.join(", ")));
        }
    }
    none("an arrow that the table of rooms does not have", offenders);
}

#[test]
fn modules_of_the_platform_crate_have_no_circle() {
    let arrows = arrows("pipewright-os", 2);
    assert!(arrows.len() > 100, "only {} arrows were found", arrows.len());
    none("a circle", circles(&arrows));
}

#[test]
fn modules_of_the_benchmarks_have_no_circle() {
    let arrows = arrows("pipewright-bench", 2);
    assert!(arrows.len() > 3, "only {} arrows were found", arrows.len());
    none("a circle", circles(&arrows));
}

#[test]
fn top_level_modules_have_no_circle() {
    for name in WITHOUT_CIRCLES {
        let arrows = arrows(name, 1);
        // The suites' helpers use each other least.
        assert!(arrows.len() > 1, "only {} arrows were found in {name}", arrows.len());
        none(&format!("a circle in {name}"), circles(&arrows));
    }
}

#[test]
fn folders_of_the_disk_crate_have_no_circle_inside() {
    let arrows = arrows("pipewright-disk", 2);
    assert!(arrows.len() > 5, "only {} arrows were found", arrows.len());
    none("a circle", circles(&arrows));
}

#[test]
fn folders_of_the_disk_and_channel_rooms_have_no_circle_inside() {
    let mut arrows = arrows("pipewright-os", 3);
    arrows.retain(|(from, _), _| from.starts_with("disk::") || from.starts_with("channel::"));
    assert!(arrows.len() > 5, "only {} arrows were found", arrows.len());
    none("a circle", circles(&arrows));
}

#[test]
fn cycles_are_found_and_chains_are_not() {
    let arrow =
        |(from, to): (&str, &str)| ((from.to_owned(), to.to_owned()), vec![format!("{from}.rs")]);
    let chain = [("a", "b"), ("b", "c"), ("a", "c")];
    assert_eq!(circles(&chain.map(arrow).into()), Vec::<String>::new());
    let circle = [("a", "b"), ("b", "c"), ("c", "b")];
    assert_eq!(circles(&circle.map(arrow).into()).len(), 1);
}

// The paths that a Rust file names, read from its text without the code of its tests.

/// The parts of a path, from the root of its crate.
type Path = Vec<String>;

/// One source file of a crate.
struct SourceFile {
    /// The name of the file, for people to read.
    file: String,
    module: Path,
    tokens: Vec<String>,
    /// The modules of this file that only tests have.
    test_modules: Vec<Path>,
}

/// The paths that a file names.
#[derive(Debug, Default)]
struct Named {
    /// Those that lead into the crate, each with the names that the file has imported written out.
    paths: Vec<Path>,
    /// The names that it has imported, and what they mean.
    imports: HashMap<String, Path>,
}

impl SourceFile {
    /// Takes the text of the file that holds that module.
    fn new(file: String, module: Path, text: &str) -> SourceFile {
        let mut test_modules = Vec::new();
        let tokens = without_tests(tokens(text), &mut test_modules);
        let test_modules = test_modules.into_iter().map(|name| joined(&module, &[name])).collect();
        SourceFile { file, module, tokens, test_modules }
    }

    /// Returns the paths into the crate, whose modules `is_module` knows.
    fn named(&self, is_module: &dyn Fn(&[String]) -> bool) -> Named {
        let mut named = Named::default();
        let mut inline = Vec::new();
        for (module, path, alias) in imports(&self.tokens, &self.module) {
            if let Some(path) = absolute(&path, &module, &named.imports, is_module) {
                if let Some(alias) = alias {
                    named.imports.insert(alias, path.clone());
                }
                named.paths.push(path);
            }
        }
        walk(&self.tokens, &self.module, &mut |module, rest| {
            inline.push((module.to_vec(), path_at(rest)));
        });
        for (module, path) in inline {
            named.paths.extend(absolute(&path, &module, &named.imports, is_module));
        }
        named
    }
}

/// Returns the path from the root of the crate. `None`: it leads to another crate.
fn absolute(
    path: &[String],
    module: &[String],
    imports: &HashMap<String, Path>,
    is_module: &dyn Fn(&[String]) -> bool,
) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some(joined(module, rest)),
        "super" => {
            let above = module.split_last().map_or(module, |(_, above)| above);
            let is_up = rest.first().is_some_and(|part| part == "super");
            if is_up {
                absolute(rest, above, imports, is_module)
            } else {
                Some(joined(above, rest))
            }
        }
        _ if is_module(&joined(module, &path[..1])) => Some(joined(module, path)),
        name => imports.get(name).map(|meant| joined(meant, rest)),
    }
}

fn joined(prefix: &[String], back: &[String]) -> Path {
    [prefix, back].concat()
}

/// Returns the tree of each `use`: its module, each path, and the name that it imports.
fn imports(tokens: &[String], module: &[String]) -> Vec<(Path, Path, Option<String>)> {
    let mut found = Vec::new();
    walk_all(tokens, module, &mut |module, rest| {
        if is_import(rest) {
            let end = rest.iter().position(|token| token == ";").unwrap_or(rest.len());
            let mut paths = Vec::new();
            leaves(&rest[1..end], &[], &mut paths);
            found.extend(paths.into_iter().map(|(path, name)| (module.to_vec(), path, name)));
        }
    });
    found
}

/// Returns true at the beginning of an import. `use<'a>` is another thing.
fn is_import(tokens: &[String]) -> bool {
    tokens[0] == "use" && tokens.get(1).is_some_and(|next| next != "<")
}

/// Writes out one branch of a `use` tree.
fn leaves(tree: &[String], prefix: &[String], found: &mut Vec<(Path, Option<String>)>) {
    let mut path = prefix.to_vec();
    for (at, token) in tree.iter().enumerate() {
        match token.as_str() {
            "::" => {}
            "as" => {
                let alias = tree.get(at + 1).cloned();
                return found.push((path, alias));
            }
            "{" => {
                let group = &tree[at + 1..tree.len() - 1];
                return branches(group).into_iter().for_each(|it| leaves(it, &path, found));
            }
            "self" if !path.is_empty() => {}
            part => path.push(part.to_owned()),
        }
    }
    let alias = path.last().filter(|last| *last != "*").cloned();
    found.push((path, alias));
}

/// Splits at the commas that no bracket encloses.
fn branches(tokens: &[String]) -> Vec<&[String]> {
    let mut depth = 0;
    let parts = tokens.split(|token| {
        depth += bracket(token);
        depth == 0 && token == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Calls back at the beginning of each path in code.
fn walk(tokens: &[String], module: &[String], found: &mut dyn FnMut(&[String], &[String])) {
    let mut import_ends = 0;
    walk_all(tokens, module, &mut |module, rest| {
        let at = tokens.len() - rest.len();
        if is_import(rest) {
            let length = rest.iter().position(|token| token == ";").unwrap_or(rest.len());
            import_ends = at + length;
        }
        let is_first = at == 0 || tokens[at - 1] != "::";
        let is_path = is_word(&rest[0]) && rest.get(1).is_some_and(|next| next == "::");
        if at >= import_ends && is_first && is_path {
            found(module, rest);
        }
    });
}

/// Calls back at each token, with its module.
fn walk_all(tokens: &[String], module: &[String], found: &mut dyn FnMut(&[String], &[String])) {
    let mut module = module.to_vec();
    let (mut depth, mut inner) = (0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        depth += bracket(token);
        if token == "{" && at >= 2 && tokens[at - 2] == "mod" {
            module.push(tokens[at - 1].clone());
            inner.push(depth);
        }
        if token == "}" && inner.last().is_some_and(|begun| depth < *begun) {
            module.pop();
            inner.pop();
        }
        found(&module, &tokens[at..]);
    }
}

fn path_at(tokens: &[String]) -> Path {
    let mut path = vec![tokens[0].clone()];
    for pair in tokens[1..].chunks_exact(2) {
        if pair[0] != "::" || !is_word(&pair[1]) {
            break;
        }
        path.push(pair[1].clone());
    }
    path
}

/// Leaves out code that is compiled for tests only, and collects the names of its modules.
fn without_tests(tokens: Vec<String>, test_modules: &mut Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut rest = tokens.as_slice();
    while let Some(token) = rest.first() {
        let predicate = rest.get(4..).filter(|_| rest[..4] == ["#", "[", "cfg", "("]);
        match predicate.filter(|it| needs_test(it)) {
            Some(_) => {
                let item = &rest[attribute(rest)..];
                let length = item_length(item);
                let names = item[..length].windows(2).find(|pair| pair[0] == "mod");
                test_modules.extend(names.map(|pair| pair[1].clone()));
                // Attributes in front of this one belong to the item too, and name no paths.
                rest = &item[length..];
            }
            None => {
                kept.push(token.clone());
                rest = &rest[1..];
            }
        }
    }
    kept
}

/// Returns true if the predicate of a `cfg` holds in tests only.
fn needs_test(predicate: &[String]) -> bool {
    let Some(first) = predicate.first() else { return false };
    let arguments = || {
        let end = closing(&predicate[1..]);
        branches(&predicate[2..=end])
    };
    match first.as_str() {
        "test" => true,
        "all" => arguments().iter().any(|it| needs_test(it)),
        "any" => arguments().iter().all(|it| needs_test(it)),
        _ => false,
    }
}

/// Returns the length of the attribute at the beginning.
fn attribute(tokens: &[String]) -> usize {
    closing(&tokens[1..]) + 2
}

/// Returns the place of the bracket that closes the first one.
fn closing(tokens: &[String]) -> usize {
    let mut depth = 0;
    let is_end = |token: &String| {
        depth += bracket(token);
        depth == 0
    };
    tokens.iter().position(is_end).unwrap_or(tokens.len() - 1)
}

/// Returns the length of the item, the field or the statement at the beginning.
fn item_length(tokens: &[String]) -> usize {
    let mut begin = 0;
    while tokens.get(begin).is_some_and(|token| token == "#") {
        begin += attribute(&tokens[begin..]);
    }
    let mut word = begin + usize::from(tokens[begin] == "pub");
    if word > begin && tokens[word] == "(" {
        word += closing(&tokens[word..]) + 1;
    }
    let is_import = tokens[word] == "use";
    let words = ["pub", "use", "mod", "fn", "impl", "struct", "enum", "const", "static", "unsafe"];
    let more = ["extern", "type", "trait", "macro_rules", "async", "let"];
    let is_item = [&words[..], &more].concat().contains(&tokens[begin].as_str());
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        depth += bracket(token);
        match token.as_str() {
            "}" | ")" if depth < 0 => return at,
            "}" if depth == 0 && !is_import => return at + 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn bracket(token: &str) -> i32 {
    match token {
        "{" | "(" | "[" => 1,
        "}" | ")" | "]" => -1,
        _ => 0,
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Takes a text apart into words, `::` and single characters. Comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
            end.unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        let is_token = is_word(token) && literal(rest).is_none()
            || token == "::"
            || token.len() == 1 && !token.trim().is_empty() && !first.is_alphanumeric();
        if is_token {
            tokens.push(token.to_owned());
        }
        rest = after;
    }
    tokens
}

/// Returns the length of a string or a character, where one begins.
fn literal(text: &str) -> Option<usize> {
    let bare = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - bare.len();
    if let Some(raw) = bare.strip_prefix('r').filter(|_| prefix <= 1) {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        if raw[marks..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(marks));
            let end = raw[marks + 1..].find(&close)?;
            return Some(prefix + 1 + marks + 1 + end + close.len());
        }
    }
    let quote = bare.chars().next().filter(|it| prefix <= 1 && matches!(it, '"' | '\''))?;
    let inside = &bare[1..];
    // A lifetime is a quote and a word, and no quote after that.
    let second = inside.char_indices().nth(1).map(|(_, it)| it);
    if quote == '\'' && !inside.starts_with('\\') && second != Some('\'') {
        return None;
    }
    let mut escaped = false;
    for (at, it) in inside.char_indices() {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            it if it == quote => return Some(prefix + 1 + at + 1),
            _ => {}
        }
    }
    None
}

#[test]
fn paths_resolve_imports_and_skip_tests_and_strings() {
    let text = r##"
//! See [`crate::doc::Link`].
use crate::base::{pipe::{self, Mode as M}, wait};
pub(crate) use super::low::*;
#[cfg(all(test, unix))]
use crate::only::tests;
#[cfg(any(windows, test))]
use crate::also::here;
const TEXT: &str = r#"crate::in::text"#;
const MARK: char = '"'; /* crate::in::comment */
fn f<'a>() -> impl Sized + use<'a> { wait::any(M::Sync); <u8 as crate::inline::Trait>::call::<'a'>() }
mod inner { fn g() { super::super::super::top::h() } }
fn h() { child::call(); other_crate::call() }
#[cfg(test)]
mod tests { use crate::test::Thing; }
fn last() { crate::last::call() }
"##;
    let module = ["room", "module"].map(str::to_owned).to_vec();
    let source = SourceFile::new("x.rs".to_owned(), module, text);
    let named = source.named(&|path| path.last().is_some_and(|last| last == "child"));
    let found: Vec<String> = named.paths.iter().map(|path| path.join("::")).collect();
    let expected = [
        "base::pipe",
        "base::pipe::Mode",
        "base::wait",
        "room::low::*",
        "also::here",
        "base::wait::any",
        "base::pipe::Mode::Sync",
        "inline::Trait",
        "top::h",
        "room::module::child::call",
        "last::call",
    ];
    assert_eq!(found, expected);
    assert_eq!(source.test_modules, [["room", "module", "tests"]]);
}
