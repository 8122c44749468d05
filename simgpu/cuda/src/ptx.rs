//! What the driver needs to know of a PTX text: its kernels and its module-scope variables.
//!
//! PTX is a list of directives; a kernel is `.entry NAME`, a variable `.global` or `.const`, alignment, type, and
//! names with array sizes (PTX ISA, sections 4 and 5). Bodies are skipped by their braces.

use crate::image::Image;

/// The text is not a PTX module.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a PTX module, near byte {0}")]
pub(crate) struct PtxError(usize);

/// Reads a PTX module.
pub(crate) fn parse(text: &str) -> Result<Image, PtxError> {
    let words = words(text)?;
    let mut at = Cursor {
        words: &words,
        next: 0,
        end: text.len(),
    };
    if at.peek() != Some(".version") {
        return Err(at.error());
    }
    let mut image = Image::default();
    let mut has_target = false;
    while let Some(word) = at.take() {
        match word {
            ".version" => _ = at.take().ok_or(PtxError(text.len()))?,
            ".address_size" => _ = at.take().ok_or(PtxError(text.len()))?,
            ".target" => {
                let target = at.take().ok_or(PtxError(text.len()))?;
                image.compute = compute_of(target);
                has_target = true;
                while at.peek() == Some(",") {
                    at.next += 2;
                }
            }
            ".entry" => {
                let name = at.take().filter(|name| is_name(name)).ok_or_else(|| at.error())?;
                image.kernels.push(name.to_owned());
                at.skip_body()?;
            }
            ".func" => at.skip_body()?,
            ".global" | ".const" => at.variables(&mut image)?,
            ".section" => {
                // The section's name, then its braces: debug information.
                at.take();
                at.skip_body()?;
            }
            // Linkage, alignment of what follows and pragmas carry nothing that is needed here.
            ".visible" | ".extern" | ".weak" | ".common" | ".alias" | ".file" | ".loc" | ".pragma" | ";"
            | "," | ".attribute" | ".maxnreg" => {}
            word if word.starts_with('.') || is_name(word) || word.starts_with(['"', '(', ')', '0', '1']) => {
            }
            _ if word.starts_with(|first: char| first.is_ascii_digit()) => {}
            _ => return Err(at.error()),
        }
    }
    if has_target { Ok(image) } else { Err(PtxError(0)) }
}

/// `sm_80` is (8, 0), `compute_90a` is (9, 0).
fn compute_of(target: &str) -> Option<(i32, i32)> {
    let digits = target
        .strip_prefix("sm_")
        .or_else(|| target.strip_prefix("compute_"))?;
    let digits = digits.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let number: i32 = digits.parse().ok()?;
    Some((number / 10, number % 10))
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '$' | '%'))
}

/// Bytes of one element of a type, `.b8` to `.f64`; `None` if the word is no type of a variable.
fn type_bytes(word: &str) -> Option<u64> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" | ".texref" | ".surfref" | ".samplerref" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

struct Cursor<'a> {
    words: &'a [(usize, &'a str)],
    next: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|word| word.1)
    }

    fn take(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.next += 1;
        word
    }

    fn error(&self) -> PtxError {
        let last = self.words.get(self.next.saturating_sub(1));
        PtxError(last.map_or(self.end, |word| word.0))
    }

    /// Skips to the end of a function: its braces, or a semicolon if it is only declared.
    fn skip_body(&mut self) -> Result<(), PtxError> {
        let mut depth = 0_usize;
        while let Some(word) = self.take() {
            match word {
                "{" => depth += 1,
                "}" if depth == 1 => return Ok(()),
                "}" => depth = depth.checked_sub(1).ok_or_else(|| self.error())?,
                ";" if depth == 0 => return Ok(()),
                _ => {}
            }
        }
        Err(PtxError(self.end))
    }

    /// `.align 4 .v2 .f32 a[10][2] = {...}, b;`
    fn variables(&mut self, image: &mut Image) -> Result<(), PtxError> {
        let (mut element, mut lanes) = (None, 1);
        loop {
            match self.take().ok_or(PtxError(self.end))? {
                ".align" => _ = self.take(),
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                // `.attribute(.managed)`, `.ptr`: they change nothing here.
                "(" => while self.take().ok_or(PtxError(self.end))? != ")" {},
                word if word.starts_with('.') => element = element.or_else(|| type_bytes(word)),
                name if is_name(name) => {
                    let element = element.ok_or_else(|| self.error())? * lanes;
                    let bytes = self.array(element)?;
                    image.globals.push((name.to_owned(), bytes));
                    match self.take().ok_or(PtxError(self.end))? {
                        "," => {}
                        ";" => return Ok(()),
                        _ => return Err(self.error()),
                    }
                }
                _ => return Err(self.error()),
            }
        }
    }

    /// The dimensions and the initial value after a name; answers the bytes of the variable.
    fn array(&mut self, element: u64) -> Result<u64, PtxError> {
        let (mut count, mut unsized_first) = (1_u64, false);
        while self.peek() == Some("[") {
            self.next += 1;
            match self.take().ok_or(PtxError(self.end))? {
                "]" => unsized_first = true,
                dimension => {
                    let dimension: u64 = dimension.parse().map_err(|_| self.error())?;
                    count = count.checked_mul(dimension).ok_or_else(|| self.error())?;
                    if self.take() != Some("]") {
                        return Err(self.error());
                    }
                }
            }
        }
        let mut values = 0_u64;
        if self.peek() == Some("=") {
            self.next += 1;
            let mut depth = 0_usize;
            while let Some(word) = self.peek() {
                match word {
                    "{" => depth += 1,
                    "}" => depth = depth.checked_sub(1).ok_or_else(|| self.error())?,
                    "," | ";" if depth == 0 => break,
                    "," => {}
                    _ => values += 1,
                }
                self.next += 1;
            }
        }
        if unsized_first {
            count = count.max(values);
        }
        count.checked_mul(element).ok_or_else(|| self.error())
    }
}

/// Cuts the text into words: names, directives, numbers, strings and single signs. Comments are left out.
fn words(text: &str) -> Result<Vec<(usize, &str)>, PtxError> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let length = if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        } else if rest.starts_with(b"//") {
            at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            continue;
        } else if rest.starts_with(b"/*") {
            at += rest
                .windows(2)
                .position(|pair| pair == b"*/")
                .ok_or(PtxError(at))?
                + 2;
            continue;
        } else if byte == b'"' {
            rest.iter()
                .skip(1)
                .position(|&byte| byte == b'"')
                .ok_or(PtxError(at))?
                + 2
        } else if is_word_byte(byte) || byte == b'.' {
            // `.f32` starts a word, and `%tid.x` and `1.5` go on over the point.
            1 + rest
                .iter()
                .skip(1)
                .take_while(|&&byte| is_word_byte(byte) || byte == b'.')
                .count()
        } else if byte.is_ascii_punctuation() {
            1
        } else {
            return Err(PtxError(at));
        };
        words.push((at, text.get(at..at + length).ok_or(PtxError(at))?));
        at += length;
    }
    Ok(words)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = ".version 7.0\n.target sm_80, debug\n.address_size 64\n";

    #[test]
    fn kernels_and_variables_are_found() {
        let text = format!(
            "// made by hand\n{HEADER}/* two\nlines */ .visible .global .align 4 .b8 table[400];\n\
             .global .f32 a = 0f3F800000, b;\n.const .align 8 .v2 .u64 pairs[3][2] = {{ {{1,2}}, {{3,4}} }};\n\
             .visible .entry _Z4axpyPf(\n .param .u64 _Z4axpyPf_param_0\n)\n.maxntid 128, 1, 1\n{{\n\
             .reg .pred %p<2>; {{ ret; }}\n}}\n.func (.param .b32 r) helper();\n.entry second() {{ ret; }}\n"
        );
        let image = parse(&text).unwrap();
        assert_eq!(image.kernels, ["_Z4axpyPf", "second"]);
        let expected = [("table", 400), ("a", 4), ("b", 4), ("pairs", 96)];
        assert_eq!(
            image.globals,
            expected.map(|(name, bytes)| (name.to_owned(), bytes))
        );
        assert_eq!(image.compute, Some((8, 0)));
    }

    #[test]
    fn an_array_without_a_size_takes_that_of_its_values() {
        let image = parse(&format!("{HEADER}.global .u32 t[] = {{1, 2, 3}};")).unwrap();
        assert_eq!(image.globals, [("t".to_owned(), 12)]);
    }

    #[test]
    fn a_name_of_a_kernel_in_a_comment_or_a_body_is_not_one() {
        let text = format!("{HEADER}// .entry no()\n.entry yes() {{ // .entry neither {{\n ret; }}");
        assert_eq!(parse(&text).unwrap().kernels, ["yes"]);
    }

    #[test]
    fn text_that_is_no_module_is_refused() {
        for text in [
            "",
            "hello",
            ".target sm_80",
            ".version 7.0",
            ".version 7.0 .target sm_80 .entry () {}",
            ".version 7.0 .target sm_80 .entry k() { ret;",
            ".version 7.0 .target sm_80 .global .b8 x[y];",
            ".version 7.0 .target sm_80 } ",
            ".version 7.0 .target sm_80 /* open",
            ".version 7.0 .target sm_80 .global x;",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_cut_of_a_good_text_makes_it_panic() {
        let text = format!("{HEADER}.global .b8 t[4] = {{1,2}}, u;\n.entry k(.param .u64 p) {{ ret; }} // é");
        for end in 0..=text.len() {
            if let Some(cut) = text.get(..end) {
                let _ = parse(cut);
            }
        }
    }
}
