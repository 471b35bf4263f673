//! A game's saved states.

use crate::tick::Tick;

/// The newest saves, with reused memory.
#[derive(Debug)]
pub(crate) struct Saves<T> {
    /// Tick plus 1 and state of each; 0 for an empty slot.
    slots: Vec<(u32, T)>,
}

impl<T: Default> Saves<T> {
    /// Allocates `count` slots.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| (0, T::default())).collect(),
        }
    }

    /// Returns the slot for the state before `tick`: the oldest one. Newer saves are void after a
    /// rollback.
    pub(crate) fn place(&mut self, tick: Tick) -> Option<&mut T> {
        self.forget_after(tick);
        let (tag, state) = self.slots.iter_mut().min_by_key(|(tag, _)| *tag)?;
        *tag = tick.0.saturating_add(1);
        Some(state)
    }

    /// Returns the state before `tick`, and drops later ones.
    pub(crate) fn rewind(&mut self, tick: Tick) -> Option<&T> {
        self.forget_after(tick);
        self.find(tick)
    }

    /// Returns the newest state at or before `tick`, and its number.
    pub(crate) fn newest(&self, tick: Tick) -> Option<(Tick, &T)> {
        let most = tick.0.saturating_add(1);
        let slots = self.slots.iter().filter(|(tag, _)| *tag <= most);
        let (tag, state) = slots.max_by_key(|(tag, _)| *tag)?;
        Some((Tick(tag.checked_sub(1)?), state))
    }

    fn forget_after(&mut self, tick: Tick) {
        let most = tick.0.saturating_add(1);
        for (tag, _) in &mut self.slots {
            if *tag > most {
                *tag = 0;
            }
        }
    }

    /// Returns the state before `tick`.
    pub(crate) fn find(&self, tick: Tick) -> Option<&T> {
        let wanted = tick.0.saturating_add(1);
        let (_, state) = self.slots.iter().find(|(tag, _)| *tag == wanted)?;
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_a_rewind_forgets_what_is_newer() {
        let mut saves = Saves::<u32>::new(3);
        for tick in 0..5 {
            *saves.place(Tick(tick)).unwrap() = tick * 10;
        }
        assert_eq!(saves.rewind(Tick(1)), None);
        for tick in 2..5 {
            *saves.place(Tick(tick)).unwrap() = tick * 10;
        }
        assert_eq!(saves.rewind(Tick(3)), Some(&30));
        *saves.place(Tick(5)).unwrap() = 50;
        assert_eq!(saves.rewind(Tick(4)), None, "void since tick 3");
        assert_eq!(saves.newest(Tick(4)), Some((Tick(3), &30)));
        assert_eq!(saves.rewind(Tick(2)), Some(&20), "and not forgotten");
        // A game that restarted with an older state saves that one first.
        *saves.place(Tick(1)).unwrap() = 11;
        *saves.place(Tick(2)).unwrap() = 22;
        assert_eq!(saves.rewind(Tick(1)), Some(&11));
        assert_eq!(saves.newest(Tick(9)), Some((Tick(1), &11)));
    }
}
