//! How often a session may change its address.

use core::time::Duration;

use wire::Instant;

/// Times of the last changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switches {
    /// A ring.
    times: [Option<Instant>; Self::PER_WINDOW],
    /// Where the oldest stands.
    next: u8,
    last: Option<Instant>,
}

impl Switches {
    /// Changes in [`Self::WINDOW`]; TWP/1, section 9.
    pub(super) const PER_WINDOW: usize = 8;
    pub(super) const WINDOW: Duration = Duration::from_secs(60);
    /// Least time between two.
    pub(super) const SPACING: Duration = Duration::from_secs(1);

    pub(super) const NONE: Self = Self {
        times: [None; Self::PER_WINDOW],
        next: 0,
        last: None,
    };

    /// Takes note of a change.
    pub(super) fn note(&mut self, now: Instant) {
        if let Some(time) = self.times.get_mut(usize::from(self.next)) {
            *time = Some(now);
        }
        self.next = self.next.saturating_add(1);
        if usize::from(self.next) >= Self::PER_WINDOW {
            self.next = 0;
        }
        self.last = Some(now);
    }

    /// Returns whether a second has passed since the last change.
    pub(super) fn are_spaced(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + Self::SPACING)
    }

    /// Returns whether fewer than eight were within a minute.
    pub(super) fn are_few(&self, now: Instant) -> bool {
        let oldest = self.times.get(usize::from(self.next)).copied().flatten();
        oldest.is_none_or(|oldest| now >= oldest + Self::WINDOW)
    }

    /// Returns whether the last change is forgotten.
    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + Self::WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_changes_in_any_minute_and_one_in_any_second() {
        let mut switches = Switches::NONE;
        let mut times = Vec::new();
        for millis in (0..200_000).step_by(100) {
            let now = Instant::from_millis(millis);
            if switches.are_spaced(now) && switches.are_few(now) {
                switches.note(now);
                times.push(millis);
            }
        }
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000));
        assert!(times.windows(9).all(|nine| nine[8] - nine[0] >= 60_000));
        assert_eq!(times.len(), 4 * Switches::PER_WINDOW);
        assert!(!switches.are_over(Instant::from_millis(200_000)));
        assert!(switches.are_over(Instant::from_millis(300_000)));
    }
}
