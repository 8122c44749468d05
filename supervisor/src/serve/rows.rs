//! Rows of a CSV file: by column name, with the line in each error.

use std::fmt::Display;

use csv::{ReaderBuilder, StringRecord, Trim};

/// What is wrong with a file, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
pub struct InputError {
    /// As it was named.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In words.
    pub fault: String,
}

/// A file with a header.
#[derive(Debug)]
pub(super) struct Sheet<'a> {
    file: &'a str,
    header: StringRecord,
    records: Vec<StringRecord>,
    /// The line of the file that each kept line was.
    numbers: Vec<u64>,
}

fn line_of(numbers: &[u64], position: Option<&csv::Position>) -> u64 {
    let index = position.and_then(|position| usize::try_from(position.line()).ok());
    let number = index.and_then(|index| numbers.get(index.checked_sub(1)?));
    number.copied().unwrap_or(1)
}

/// One row of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    sheet: &'a Sheet<'a>,
    record: &'a StringRecord,
}

impl<'a> Sheet<'a> {
    /// Reads the text of a file. `known` says whether a column has a meaning: a misspelt one would otherwise
    /// go unnoticed.
    pub(super) fn read(file: &'a str, text: &str, known: impl Fn(&str) -> bool) -> Result<Self, InputError> {
        let at = |line: u64, fault: String| InputError {
            file: file.to_owned(),
            line,
            fault,
        };
        // The reader counts lines from the end of the last record: it must see neither blank lines nor comments.
        let text = text.trim_start_matches('\u{feff}');
        let full = |(_, line): &(u64, &str)| !line.trim().is_empty() && !line.starts_with('#');
        let (numbers, kept): (Vec<u64>, Vec<&str>) = (1..).zip(text.lines()).filter(full).unzip();
        let kept = kept.join("\n");
        let broken = |error: &csv::Error| {
            let line = line_of(&numbers, error.position());
            match error.kind() {
                csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } => at(line, format!("{len} fields, and the header has {expected_len}")),
                _ => at(line, error.to_string()),
            }
        };
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(kept.as_bytes());
        let header = reader.headers().map_err(|error| broken(&error))?.clone();
        for (index, column) in header.iter().enumerate() {
            if !known(column) {
                return Err(at(1, format!("unknown column `{column}`")));
            }
            if header.iter().take(index).any(|other| other == column) {
                return Err(at(1, format!("column `{column}` is there twice")));
            }
        }
        let records = reader
            .into_records()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| broken(&error))?;
        if records.is_empty() {
            return Err(at(1, "no rows".to_owned()));
        }
        Ok(Self {
            file,
            header,
            records,
            numbers,
        })
    }

    /// The place of a column.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// The place of a column that must be there.
    pub(super) fn need(&self, name: &str) -> Result<usize, InputError> {
        self.column(name)
            .ok_or_else(|| self.fault(1, format_args!("column `{name}` is missing")))
    }

    /// The columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.header.iter()
    }

    pub(super) fn fault(&self, line: u64, fault: impl Display) -> InputError {
        InputError {
            file: self.file.to_owned(),
            line,
            fault: fault.to_string(),
        }
    }

    pub(super) fn rows(&'a self) -> impl Iterator<Item = Row<'a>> {
        self.records.iter().map(|record| Row { sheet: self, record })
    }
}

impl<'a> Row<'a> {
    pub(super) fn line(self) -> u64 {
        line_of(&self.sheet.numbers, self.record.position())
    }

    pub(super) fn fault(self, fault: impl Display) -> InputError {
        self.sheet.fault(self.line(), fault)
    }

    /// The text of a field; `None` where it is blank or the column is not there.
    pub(super) fn text(self, column: Option<usize>) -> Option<&'a str> {
        column
            .and_then(|column| self.record.get(column))
            .filter(|text| !text.is_empty())
    }

    /// The text of a field that must be there.
    pub(super) fn word(self, column: usize) -> Result<&'a str, InputError> {
        self.text(Some(column))
            .ok_or_else(|| self.fault(format_args!("`{}` is blank", self.name(column))))
    }

    /// A finite number above 0.
    pub(super) fn number(self, column: usize) -> Result<f64, InputError> {
        let text = self.word(column)?;
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
            _ => Err(self.wrong(column, text, "a number above 0")),
        }
    }

    /// A whole number above 0.
    pub(super) fn count(self, column: usize) -> Result<u32, InputError> {
        let text = self.word(column)?;
        match text.parse::<u32>() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(self.wrong(column, text, "a whole number above 0")),
        }
    }

    /// What a field is not.
    pub(super) fn wrong(self, column: usize, text: &str, wanted: &str) -> InputError {
        self.fault(format_args!(
            "`{}` is `{text}`, which is not {wanted}",
            self.name(column)
        ))
    }

    fn name(self, column: usize) -> &'a str {
        self.sheet.header.get(column).unwrap_or("?")
    }
}
