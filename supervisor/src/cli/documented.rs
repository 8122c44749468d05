//! What the help and the documentation say of commands is what the parser takes.

use std::path::{Path, PathBuf};

use clap::{Command as Parser, CommandFactory, Parser as _};

use super::Cli;

/// Columns of a terminal that is taken for granted.
const COLUMNS: usize = 80;

/// Every command, the hidden ones too, by its words after `migm`.
fn commands() -> Vec<(String, Parser)> {
    let mut root = Cli::command().term_width(100);
    root.build();
    let mut found = vec![(String::new(), root)];
    let mut next = 0;
    while let Some((path, command)) = found.get(next).cloned() {
        let below = command.get_subcommands().filter(|one| one.get_name() != "help");
        found.extend(below.map(|one| {
            (
                format!("{path} {}", one.get_name()).trim().to_owned(),
                one.clone(),
            )
        }));
        next += 1;
    }
    found
}

/// The pages, and what all commands say of themselves.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "examples/README.md"]
        .map(|page| root.join(page))
        .to_vec();
    for folder in ["docs", "docs/design"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: PathBuf| {
        (
            path.display().to_string(),
            std::fs::read_to_string(&path).unwrap(),
        )
    };
    paths.into_iter().map(read).collect()
}

/// The lines of the text's fenced blocks for a shell, and of those that show one what was typed.
fn typed(text: &str) -> Vec<&str> {
    let fenced = text.split("```").skip(1).step_by(2);
    let lines = fenced.flat_map(|block| {
        let (language, lines) = block.split_once('\n').unwrap_or((block, ""));
        lines.lines().filter_map(move |line| match language {
            "sh" => Some(line),
            "console" => line.strip_prefix("$ "),
            _ => None,
        })
    });
    lines.collect()
}

/// The commands of ours on a line of shell: their words after `migm`.
fn ours(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or("");
    let parts = line.split("$(").flat_map(|part| part.split("&&"));
    let commands = parts.filter_map(|part| part.trim().strip_prefix("migm "));
    let words = |command: &str| {
        let command = command.split(')').next().unwrap_or("");
        command.split_whitespace().map(str::to_owned).collect()
    };
    commands.map(words).collect()
}

#[test]
fn commands_in_the_documentation_and_the_help_are_understood() {
    let helps = commands().into_iter().filter_map(|(path, command)| {
        Some((
            format!("migm {path} --help"),
            command.get_after_help()?.to_string(),
        ))
    });
    let shell = pages()
        .into_iter()
        .map(|(page, text)| (page, typed(&text).join("\n")));
    let (mut tried, mut wrong) = (0, Vec::new());
    for (place, text) in helps.chain(shell) {
        for words in text.lines().flat_map(ours) {
            tried += 1;
            let parsed = Cli::try_parse_from(std::iter::once("migm".to_owned()).chain(words.clone()));
            if let Err(error) = parsed {
                wrong.push(format!(
                    "{place}: migm {}: {}",
                    words.join(" "),
                    super::usage_line(&error.to_string())
                ));
            }
        }
    }
    assert!(tried > 20, "only {tried} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn options_in_the_documentation_exist() {
    let commands = commands();
    let (mut tried, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        // A code span may go over the end of a line.
        for span in text.split('`').skip(1).step_by(2) {
            let Some(said) = span.strip_prefix("migm ") else {
                continue;
            };
            let said = said.split(" -- ").next().unwrap_or(said);
            let mut words = said.split_whitespace().peekable();
            let mut path = String::new();
            while let Some((longer, _)) = words.peek().and_then(|word| {
                commands
                    .iter()
                    .find(|(known, _)| *known == format!("{path} {word}").trim())
            }) {
                path.clone_from(longer);
                words.next();
            }
            let (_, command) = commands.iter().find(|(known, _)| *known == path).unwrap();
            for option in words.filter_map(|word| word.trim_start_matches('[').strip_prefix("--")) {
                let name = option.split(['=', '[', ']']).next().unwrap_or(option);
                tried += 1;
                if name != "help"
                    && !command
                        .get_arguments()
                        .any(|known| known.get_long() == Some(name))
                {
                    wrong.push(format!("{page}: `migm {path}` has no --{name}"));
                }
            }
        }
    }
    assert!(tried > 20, "only {tried} options were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn help_is_short_and_the_same_in_both_forms() {
    let mut wrong = Vec::new();
    for (path, mut command) in commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        // The list of commands indents by two, and by the longest name and two more.
        let listed = about.chars().count() + 2 + "disable-mig".len() + 2;
        if !path.is_empty() && (about.is_empty() || listed > COLUMNS) {
            wrong.push(format!(
                "migm {path}: its line in the list is empty or too long: {about}"
            ));
        }
        // Any of these makes `--help` a page of paragraphs, and `-h` another.
        let paragraphs = |argument: &clap::Arg| {
            let values = argument.get_possible_values();
            argument.get_long_help().is_some() || values.iter().any(|value| value.get_help().is_some())
        };
        if command.get_long_about().is_some() || command.get_arguments().any(paragraphs) {
            wrong.push(format!("migm {path}: -h and --help differ"));
        }
        let help = command.render_help().to_string();
        let long = help.lines().filter(|line| line.chars().count() > 100);
        wrong.extend(long.map(|line| format!("migm {path}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_policy_is_in_the_help_of_what_takes_one() {
    let known = "none"
        .parse::<crate::schedule::PolicyName>()
        .unwrap_err()
        .to_string();
    let (_, names) = known.split_once("there are ").unwrap();
    for (path, mut command) in commands() {
        let takes = command
            .get_arguments()
            .any(|argument| argument.get_long() == Some("policy"));
        if !takes || path == "demo" {
            continue;
        }
        let help = command.render_help().to_string();
        for name in names
            .split([',', ' '])
            .filter(|name| !name.is_empty() && *name != "and")
        {
            // It is searched for with the workload known, so nobody can serve by it.
            if name != "best-static" || path == "simulate" {
                assert!(help.contains(name), "migm {path} --help does not name {name}");
            }
        }
    }
}

/// The name that a heading has in a link: as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn links_in_the_documentation_lead_somewhere() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            tried += 1;
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => PathBuf::from(&page),
                file => Path::new(&page).with_file_name(file),
            };
            let there = match (std::fs::read_to_string(&target), place) {
                (Ok(_), "") => true,
                (Ok(text), place) => text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == place),
                (Err(_), place) => target.is_dir() && place.is_empty(),
            };
            if !there {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(tried > 20, "only {tried} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every file and folder of the sources, by its path from the root.
fn sources(folder: &Path, root: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            sources(&path, root, found);
        }
        found.push(path.strip_prefix(root).unwrap().display().to_string());
    }
}

#[test]
fn files_named_in_the_documentation_exist() {
    const FOLDERS: [&str; 9] = [
        ".ci/",
        "benches/",
        "docs/",
        "examples/",
        "interposer/",
        "shared/",
        "simgpu/",
        "supervisor/",
        "tests/",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut known = Vec::new();
    sources(&root, &root, &mut known);
    let (mut tried, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        let prose: Vec<_> = text.split("```").step_by(2).collect();
        for span in prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)) {
            let ours = span.ends_with(".rs") || FOLDERS.iter().any(|folder| span.starts_with(folder));
            if !ours || span.contains([' ', '*', '<']) {
                continue;
            }
            tried += 1;
            let span = span.trim_end_matches('/');
            let below = format!("/{span}");
            if !known.iter().any(|path| path == span || path.ends_with(&below)) {
                wrong.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(tried > 50, "only {tried} names were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
