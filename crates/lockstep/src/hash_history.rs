//! A participant's own state hashes: those to report, and those of the last ticks for bisecting
//! desyncs.

use crate::checksum::SECTIONS_MAX;
use crate::event::ReportError;
use crate::tick::{Tick, slot};

/// Hashes of the last ticks, also between hash steps. Memory is allocated with the first tick, and
/// when a tick has more sections than any before.
#[derive(Debug)]
pub(crate) struct HashHistory {
    len: u16,
    /// Tick `t` in slot `t % len`; empty until the first.
    kept: Vec<Kept>,
    /// `stride` hashes per slot.
    sections: Vec<u32>,
    /// Most sections of any tick so far; at most [`SECTIONS_MAX`].
    stride: usize,
    pub(crate) names: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// The tick plus 1; 0 if the slot is empty.
    tag: u32,
    report: u32,
    log: u32,
    section_count: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickRecord<'a> {
    /// Hash over log and state, as players report it.
    pub(crate) report: u32,
    pub(crate) log: u32,
    pub(crate) sections: &'a [u32],
}

impl HashHistory {
    pub(crate) const fn new(len: u16) -> Self {
        Self {
            len,
            kept: Vec::new(),
            sections: Vec::new(),
            stride: 0,
            names: Vec::new(),
        }
    }

    /// Records `tick`, in place of the one `len` ticks older.
    pub(crate) fn push(
        &mut self,
        tick: Tick,
        (report, log): (u32, u32),
        sections: impl Iterator<Item = (&'static str, u32)> + Clone,
    ) {
        let Some(slot) = self.slot(tick) else {
            return;
        };
        let sections = sections.take(SECTIONS_MAX);
        let count = sections.clone().count();
        self.names.clear();
        self.make_room(count);
        let start = slot.saturating_mul(self.stride);
        let slots = self.sections.get_mut(start..).unwrap_or_default();
        for (slot, (name, hash)) in slots.iter_mut().zip(sections) {
            self.names.push(name);
            *slot = hash;
        }
        if let Some(kept) = self.kept.get_mut(slot) {
            *kept = Kept {
                tag: tick.0.saturating_add(1),
                report,
                log,
                section_count: u8::try_from(count).unwrap_or(u8::MAX),
            };
        }
    }

    pub(crate) fn get(&self, tick: Tick) -> Option<TickRecord<'_>> {
        let slot = self.slot(tick)?;
        let kept = self.kept.get(slot)?;
        if kept.tag != tick.0.saturating_add(1) {
            return None;
        }
        let start = slot.saturating_mul(self.stride);
        let end = start.saturating_add(kept.section_count.into());
        Some(TickRecord {
            report: kept.report,
            log: kept.log,
            sections: self.sections.get(start..end).unwrap_or_default(),
        })
    }

    pub(crate) fn has(&self, tick: Tick) -> bool {
        self.get(tick).is_some()
    }

    pub(crate) const fn memory_len(&self) -> usize {
        let kept = self.kept.capacity().saturating_mul(size_of::<Kept>());
        let sections = self.sections.capacity().saturating_mul(size_of::<u32>());
        let names = self.names.capacity().saturating_mul(size_of::<&str>());
        kept.saturating_add(sections).saturating_add(names)
    }

    fn slot(&self, tick: Tick) -> Option<usize> {
        let slot = tick.0.checked_rem(self.len.into())?;
        usize::try_from(slot).ok()
    }

    fn make_room(&mut self, count: usize) {
        if self.kept.is_empty() {
            self.kept = vec![Kept::default(); self.len.into()];
        }
        if count <= self.stride {
            return;
        }
        let mut wider = vec![0; count.saturating_mul(self.len.into())];
        if self.stride > 0 {
            let old = self.sections.chunks_exact(self.stride);
            for (to, from) in wider.chunks_exact_mut(count).zip(old) {
                for (to, from) in to.iter_mut().zip(from) {
                    *to = *from;
                }
            }
        }
        self.sections = wider;
        self.stride = count;
        self.names.reserve_exact(count);
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["one", "two", "three"];

    fn push(hash_history: &mut HashHistory, tick: u32, hash: u32, count: usize) {
        let sections = NAMES.into_iter().zip(hash..).take(count);
        hash_history.push(Tick(tick), (tick * 2, tick * 3), sections);
    }

    #[test]
    fn the_last_ticks_are_kept_and_no_others() {
        let mut hash_history = HashHistory::new(4);
        assert_eq!(
            (hash_history.get(Tick(0)), hash_history.memory_len()),
            (None, 0)
        );
        for tick in 0..10 {
            if tick != 8 {
                push(&mut hash_history, tick, tick * 10, 2);
            }
        }
        let kept: Vec<_> = (0..12)
            .filter(|&tick| hash_history.has(Tick(tick)))
            .collect();
        assert_eq!(kept, [4, 6, 7, 9], "8 was left out, and 4 is not gone");
        let expected = TickRecord {
            report: 14,
            log: 21,
            sections: &[70, 71],
        };
        assert_eq!(hash_history.get(Tick(7)), Some(expected));
        assert_eq!(hash_history.names, ["one", "two"]);
    }

    #[test]
    fn adding_sections_keeps_earlier_hashes() {
        let mut hash_history = HashHistory::new(4);
        push(&mut hash_history, 0, 0, 0);
        push(&mut hash_history, 1, 10, 1);
        push(&mut hash_history, 2, 20, 3);
        push(&mut hash_history, 3, 30, 2);
        let sections = |tick| hash_history.get(Tick(tick)).unwrap().sections.to_vec();
        assert_eq!(sections(0), []);
        assert_eq!(sections(1), [10]);
        assert_eq!(sections(2), [20, 21, 22]);
        assert_eq!(sections(3), [30, 31]);
        assert_eq!(hash_history.memory_len(), 4 * 16 + 4 * 3 * 4 + 3 * 16);
    }

    #[test]
    fn more_than_64_sections_and_an_empty_ring_are_refused() {
        let mut hash_history = HashHistory::new(2);
        hash_history.push(
            Tick(0),
            (0, 0),
            NAMES.into_iter().cycle().take(100).zip(0..),
        );
        assert_eq!(
            hash_history.get(Tick(0)).unwrap().sections.len(),
            SECTIONS_MAX
        );
        let mut none = HashHistory::new(0);
        push(&mut none, 0, 0, 3);
        assert_eq!((none.has(Tick(0)), none.memory_len()), (false, 0));
    }
}

/// State hashes kept for retransmission: as many as are compared.
const REPORTED_KEPT: u32 = 1_024;

#[derive(Debug)]
pub(crate) struct ReportedHashes {
    /// Hash of step `s` in slot `s % REPORTED_KEPT`; `None` if the application reported none.
    kept: Vec<Option<u32>>,
    pub(crate) end: u32,
}

impl ReportedHashes {
    pub(crate) fn new() -> Self {
        let slots = usize::try_from(REPORTED_KEPT).unwrap_or(usize::MAX);
        Self {
            kept: vec![None; slots],
            end: 0,
        }
    }

    pub(crate) fn push(&mut self, step: u32, hash: u32) -> Result<(), ReportError> {
        if step < self.end {
            return Err(ReportError::OutOfOrder);
        }
        let end = step.saturating_add(1);
        // Skipped steps have no hash; their slots may hold those of 1,024 steps ago.
        for skipped in self.end.max(end.saturating_sub(REPORTED_KEPT))..step {
            self.set(skipped, None);
        }
        self.set(step, Some(hash));
        self.end = end;
        Ok(())
    }

    /// Accepts reports from `step` on, even if there were earlier ones for them.
    pub(crate) fn begin_at(&mut self, step: u32) {
        self.kept.fill(None);
        self.end = step;
    }

    pub(crate) fn get(&self, step: u32) -> Option<u32> {
        self.kept.get(slot(step, REPORTED_KEPT)).copied().flatten()
    }

    /// Returns the step before `unsent` with this low half, if it is kept.
    pub(crate) fn sent_step(&self, low: u16, unsent: u32) -> Option<u32> {
        let step = Tick(unsent).widen_back(low)?.0;
        (self.oldest()..unsent).contains(&step).then_some(step)
    }

    pub(crate) const fn oldest(&self) -> u32 {
        self.end.saturating_sub(REPORTED_KEPT)
    }

    pub(crate) const fn memory_len(&self) -> usize {
        self.kept.len().saturating_mul(size_of::<Option<u32>>())
    }

    fn set(&mut self, step: u32, hash: Option<u32>) {
        if let Some(kept) = self.kept.get_mut(slot(step, REPORTED_KEPT)) {
            *kept = hash;
        }
    }
}
