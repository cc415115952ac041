//! The arrows between the modules of a crate: which module uses which, by the paths in their files.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::paths::{Path, SourceFile};
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
    assert!(arrows.len() > 5, "only {} arrows were found", arrows.len());
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
