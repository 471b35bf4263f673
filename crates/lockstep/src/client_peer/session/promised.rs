//! What the application was told that its inputs are for.

use crate::tick::Tick;

/// Ticks that were promised and not taken back.
///
/// One range, until another server takes over; what it took back lies between two. Ranges go once
/// their ticks were returned, so there is one in the end, and never more than servers there were.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// First and last tick of each, in order.
    ranges: Vec<(Tick, Tick)>,
    /// Whether the next promise is not one with those before.
    is_cut: bool,
}

impl Promised {
    pub(super) fn add(&mut self, tick: Tick) {
        match self.ranges.last_mut().filter(|_| !self.is_cut) {
            Some((_, last)) => *last = tick.max(*last),
            None => self.ranges.push((tick, tick)),
        }
        self.is_cut = false;
    }

    /// Forgets `next` and all later ticks, and those before `returned`.
    pub(super) fn take_back(&mut self, next: Tick, returned: Tick) {
        self.ranges
            .retain(|(first, last)| *first < next && *last >= returned);
        for (_, last) in &mut self.ranges {
            *last = (*last).min(next.minus(1));
        }
        self.is_cut = true;
    }

    pub(super) fn has(&self, tick: Tick) -> bool {
        let is_in = |(first, last): &(Tick, Tick)| *first <= tick && tick <= *last;
        self.ranges.iter().any(is_in)
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.ranges
            .capacity()
            .saturating_mul(size_of::<(Tick, Tick)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ls_16_what_another_server_took_back_is_no_promise() {
        let mut promised = Promised::default();
        for tick in 10..30 {
            promised.add(Tick(tick));
        }
        promised.take_back(Tick(20), Tick(5));
        assert!(promised.has(Tick(19)) && !promised.has(Tick(20)));
        promised.add(Tick(26));
        promised.add(Tick(28));
        let held: Vec<_> = (0..40).filter(|tick| promised.has(Tick(*tick))).collect();
        let kept: Vec<_> = (10..20).chain(26..29).collect();
        assert_eq!(held, kept);
        // Another one, before any tick of the one before.
        promised.take_back(Tick(22), Tick(20));
        assert_eq!(promised.ranges.len(), 0);
        promised.add(Tick(30));
        promised.take_back(Tick(28), Tick(22));
        assert!(!promised.has(Tick(30)));
    }

    #[test]
    fn l9_servers_that_take_over_again_and_again_leave_one_range() {
        let mut promised = Promised::default();
        for next in (0..1_000).map(|number| number * 10) {
            promised.take_back(Tick(next), Tick(next));
            promised.add(Tick(next + 5));
        }
        assert!(promised.memory_len() <= 4 * size_of::<(Tick, Tick)>());
    }
}
