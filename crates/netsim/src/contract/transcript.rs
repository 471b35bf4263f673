//! What the machines of a run gave, to be compared with another run.

use core::fmt;

use wire::Instant;

/// Every output of a run, in order.
#[derive(Default)]
pub(super) struct Transcript {
    entries: Vec<(Instant, usize, Output)>,
}

impl Transcript {
    pub(super) fn push(&mut self, at: Instant, machine: usize, output: Output) {
        self.entries.push((at, machine, output));
    }

    /// Says where `other` first differs.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let len = self.entries.len().max(other.entries.len());
        (0..len).find_map(|at| {
            let (this, that) = (self.entries.get(at), other.entries.get(at));
            (this != that).then(|| format!("output {at} was {this:?}, then {that:?}"))
        })
    }
}

/// Something that a machine gave.
#[derive(PartialEq, Eq)]
pub(super) struct Output {
    /// Its kind and fields.
    pub(super) text: String,
    /// What it sends.
    pub(super) bytes: Vec<u8>,
}

impl Output {
    pub(super) const fn of(text: String) -> Self {
        Self {
            text,
            bytes: Vec::new(),
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let Some(head) = self.bytes.chunks(SHOWN).next() else {
            return Ok(());
        };
        write!(f, " {head:02x?} of {} bytes", self.bytes.len())
    }
}

/// Bytes of an output that a finding shows.
const SHOWN: usize = 32;
