//! The rooms of the supervisor stand on one another in one order, and only downwards.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::path::{Path, PathBuf};

/// From the pure ground floor up; a room may use what stands before it.
const ROOMS: [&str; 12] = [
    "layout", "memory", "schedule", "whatif", "serve", "control", "node", "job", "play", "daemon", "report",
    "cli",
];

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
fn a_room_never_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("supervisor/src");
    let mut wrong = Vec::new();
    let mut uses = 0;
    for (floor, room) in ROOMS.iter().enumerate() {
        let mut files = Vec::new();
        sources(&root.join(room), &mut files);
        for file in files {
            for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                for (start, _) in code.match_indices("crate::") {
                    let name: String = code[start + 7..]
                        .chars()
                        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                        .collect();
                    if let Some(used) = ROOMS.iter().position(|known| *known == name) {
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("supervisor/src");
    let mut wrong = Vec::new();
    for room in &ROOMS[..4] {
        let mut files = Vec::new();
        sources(&root.join(room), &mut files);
        assert!(!files.is_empty(), "{room} has no sources");
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
