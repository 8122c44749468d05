//! The rooms of the supervisor stand on one another in the order of the table in docs/ARCHITECTURE.md, and those that
//! it calls pure are.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::path::{Path, PathBuf};

struct Room {
    name: String,
    pure: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rooms of the table, from the ground floor up: a room may use those before it.
fn rooms() -> Vec<Room> {
    let page = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `supervisor/src/")?.split_once("` |")?;
        let what = rest.split(" |").next()?;
        Some(Room {
            name: name.to_owned(),
            pure: what.ends_with("pure"),
        })
    });
    rows.collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_table_has_every_room() {
    let library = std::fs::read_to_string(root().join("supervisor/src/lib.rs")).unwrap();
    let modules = library
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let mut listed: Vec<_> = rooms().into_iter().map(|room| room.name).collect();
    listed.sort();
    assert_eq!(listed, modules.collect::<Vec<_>>());
}

#[test]
fn a_room_never_uses_one_above_it() {
    let rooms = rooms();
    let mut wrong = Vec::new();
    let mut uses = 0;
    for (floor, Room { name: room, .. }) in rooms.iter().enumerate() {
        let mut files = Vec::new();
        sources(&root().join("supervisor/src").join(room), &mut files);
        for file in files {
            for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                for (start, _) in code.match_indices("crate::") {
                    let name: String = code[start + 7..]
                        .chars()
                        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                        .collect();
                    if let Some(used) = rooms.iter().position(|known| known.name == name) {
                        uses += 1;
                        if used > floor {
                            wrong.push(format!("{}:{}: {room} uses {name}", file.display(), number + 1));
                        }
                    }
                }
            }
        }
    }
    assert!(uses > 10, "only {uses} uses found: the sources were not read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The pure rooms are driven by others: no clock, no files, no sockets, no processes.
#[test]
fn pure_rooms_do_no_io() {
    let mut wrong = Vec::new();
    let pure: Vec<_> = rooms().into_iter().filter(|room| room.pure).collect();
    assert!(!pure.is_empty(), "no room is called pure: the table was not read");
    for room in pure {
        let mut files = Vec::new();
        sources(&root().join("supervisor/src").join(&room.name), &mut files);
        assert!(!files.is_empty(), "{} has no sources", room.name);
        // Tests of a pure room may look at a clock; they have files of their own or stand at a file's end.
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or("");
            for word in [
                "std::fs",
                "std::net",
                "std::process",
                "std::env",
                "Instant::now",
                "SystemTime",
                "std::thread",
                "nix::",
                "libc::",
            ] {
                if code.contains(word) {
                    wrong.push(format!("{}: {word}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
