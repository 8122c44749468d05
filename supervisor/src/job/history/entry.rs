//! One line of the history: what runs of one command came to.

use serde::{Deserialize, Serialize};

use super::Signature;
use crate::control::Past;

/// What runs of one command came to. A run is appended as an entry of its own; entries of the same signature
/// are one when they are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// See [`Signature::family`]. It stands first in the line, so that a reader can pass over others.
    pub family: String,
    /// See [`Signature::id`].
    pub signature: String,
    /// See [`Signature::program`].
    pub program: String,
    /// See [`Signature::words`].
    pub words: Vec<String>,
    /// See [`Signature::environment`].
    pub environment: Vec<(String, String)>,
    /// See [`Signature::numbers`].
    pub numbers: Vec<f64>,
    /// See [`Signature::content`].
    pub content: String,
    /// GPU of the last run, as NVML names it.
    pub gpu: String,
    /// That GPU was simulated.
    pub simulated: bool,
    /// When it last ran, in seconds since 1970.
    pub last_run: u64,
    /// What the runs came to.
    pub past: Past,
}

impl Entry {
    /// Of a command.
    #[must_use]
    pub fn new(signature: &Signature, gpu: String, simulated: bool, last_run: u64, past: Past) -> Self {
        Self {
            family: signature.family(),
            signature: signature.id(),
            program: signature.program.clone(),
            words: signature.words.clone(),
            environment: signature.environment.clone(),
            numbers: signature.numbers.clone(),
            content: signature.content.clone(),
            gpu,
            simulated,
            last_run,
            past,
        }
    }

    /// Adds what came later.
    pub fn absorb(&mut self, later: Self) {
        self.past.absorb(&later.past);
        self.last_run = self.last_run.max(later.last_run);
        self.gpu = later.gpu;
        self.simulated = later.simulated;
    }

    /// The command line with its numbers, as far as it is kept.
    #[must_use]
    pub fn command(&self) -> String {
        let mut numbers = self.numbers.iter();
        let mut text = self.program.clone();
        for word in &self.words {
            text.push(' ');
            for (index, piece) in word.split('#').enumerate() {
                if index > 0 {
                    match numbers.next() {
                        Some(number) => text.push_str(&number.to_string()),
                        None => text.push('#'),
                    }
                }
                text.push_str(piece);
            }
        }
        text
    }
}
