use super::*;

fn numbers_of(word: &str) -> (String, Vec<f64>) {
    let mut numbers = Vec::new();
    let kept = without_numbers(word, &mut numbers);
    (kept, numbers)
}

#[test]
fn numbers_that_stand_alone_are_told_apart() {
    let cases: &[(&str, &str, &[f64])] = &[
        ("32", "#", &[32.0]),
        ("--batch=32", "--batch=#", &[32.0]),
        ("--lr=1e-4", "--lr=#", &[1e-4]),
        ("-5", "#", &[-5.0]),
        ("4G", "#", &[4e9]),
        ("2.5Ki", "#", &[2560.0]),
        ("8GB", "#", &[8e9]),
        ("512x256", "512x256", &[]),
        ("512,256", "#,#", &[512.0, 256.0]),
        ("resnet50", "resnet50", &[]),
        ("llama-7b", "llama-7b", &[]),
        ("1.2.3", "1.2.3", &[]),
        ("cuda:0", "cuda:#", &[0.0]),
        ("/data/run-17/x.bin", "/data/run-#/x.bin", &[17.0]),
        ("é3", "é3", &[]),
        ("3é", "3é", &[]),
        ("--x", "--x", &[]),
        ("1e999", "1e999", &[]),
        ("1e", "1e", &[]),
    ];
    for (word, kept, numbers) in cases {
        assert_eq!(numbers_of(word), ((*kept).to_owned(), numbers.to_vec()), "{word}");
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}

fn of(command: &[&str], environment: &[(&str, &str)]) -> Option<Signature> {
    let command: Vec<OsString> = command.iter().map(Into::into).collect();
    Signature::of(&command, |name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn other_numbers_are_the_same_family_and_another_program() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("p", b"\x7fELF\0");
    let one = of(&[&program, "--batch", "32"], &[]).unwrap();
    let two = of(&[&program, "--batch", "64"], &[]).unwrap();
    assert_eq!(one.family(), two.family());
    assert_ne!(one.id(), two.id());
    assert_eq!(one.words, ["--batch", "#"]);
    let other = of(&[&program, "--size", "32"], &[]).unwrap();
    assert_ne!(one.family(), other.family());
    // Not by where one word ends and the next begins, either.
    let joined = of(&[&program, "--batch#"], &[]).unwrap();
    assert_ne!(one.family(), joined.family());
}

#[test]
fn what_changes_memory_in_the_environment_counts_and_nothing_else() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("p", b"\x7fELF\0");
    let plain = of(&[&program], &[("SHELL", "/bin/sh")]).unwrap();
    let set = of(&[&program], &[("XLA_PYTHON_CLIENT_PREALLOCATE", "false")]).unwrap();
    assert_eq!(plain.family(), of(&[&program], &[]).unwrap().family());
    assert_ne!(plain.family(), set.family());
}

#[test]
fn a_script_is_part_of_the_program_and_other_content_is_another_program() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("python", b"\x7fELF\0");
    let script = folder.file("train.py", b"import torch\n");
    let before = of(&[&program, "-u", &script, "7"], &[]).unwrap();
    folder.file("train.py", b"import torch # twice as large\n");
    let after = of(&[&program, "-u", &script, "7"], &[]).unwrap();
    assert_eq!(before.family(), after.family());
    assert_ne!(before.id(), after.id());
    assert_ne!(before.content, after.content);
    let content = after.content;
    folder.file("python", b"\x7fELF\0another");
    let rebuilt = of(&[&program, "-u", &script, "7"], &[]).unwrap();
    assert_ne!(rebuilt.content, content);
}

#[test]
fn a_large_file_is_known_by_its_ends() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let mut bytes = vec![0_u8; 3 << 20];
    let program = folder.file("p", &bytes);
    let before = of(&[&program], &[]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] = 1;
    folder.file("p", &bytes);
    assert_ne!(before.content, of(&[&program], &[]).unwrap().content);
}

#[test]
fn a_program_that_is_not_there_has_no_signature() {
    assert_eq!(of(&["/no/such/program"], &[]), None);
    assert_eq!(of(&["no-such-program"], &[("PATH", "/usr/bin")]), None);
    assert_eq!(of(&[], &[]), None);
    assert!(of(&["sh"], &[("PATH", "/no:/bin")]).is_some());
}

#[test]
fn a_link_tells_python_environments_apart() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("python", b"\x7fELF\0");
    let link = folder.0.path().join("venv-python");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let link = link.display().to_string();
    let (direct, linked) = (of(&[&program], &[]).unwrap(), of(&[&link], &[]).unwrap());
    assert_eq!(direct.program, linked.program);
    assert_eq!(linked.words, [link]);
    assert_ne!(direct.family(), linked.family());
}

#[test]
fn long_argument_lists_are_kept_short_and_told_apart() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("p", b"\x7fELF\0");
    let mut command = vec![program.as_str()];
    let words: Vec<String> = (0..2_000).map(|number| format!("file{number}")).collect();
    command.extend(words.iter().map(String::as_str));
    let all = of(&command, &[]).unwrap();
    let fewer = of(&command[..1_900], &[]).unwrap();
    assert!(all.words.iter().map(String::len).sum::<usize>() < KEPT_WORDS);
    assert_ne!(all.family(), fewer.family());
}

#[test]
fn thousands_of_numbers_are_one_word_and_told_apart() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let program = folder.file("p", b"\x7fELF\0");
    let words: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let mut command = vec![program.as_str()];
    command.extend(words.iter().map(String::as_str));
    let all = of(&command, &[]).unwrap();
    assert_eq!(all.numbers, Vec::<f64>::new());
    command[1_000] = "7";
    assert_ne!(all.family(), of(&command, &[]).unwrap().family());
}
