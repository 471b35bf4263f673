//! A game's saved states.

use crate::Tick;

/// The newest saves, in memory that is used again.
#[derive(Debug)]
pub(crate) struct Snapshots<T> {
    /// Tick plus 1 and state of each; 0 where a slot holds nothing of use.
    slots: Vec<(u32, T)>,
}

impl<T: Default> Snapshots<T> {
    /// Makes room for `count` saves.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| (0, T::default())).collect(),
        }
    }

    /// Returns where to save the state before `tick`: the place of the oldest.
    pub(crate) fn place(&mut self, tick: Tick) -> Option<&mut T> {
        let (tag, state) = self.slots.iter_mut().min_by_key(|(tag, _)| *tag)?;
        *tag = tick.0.saturating_add(1);
        Some(state)
    }

    /// Returns the state before `tick`, and forgets those after it.
    pub(crate) fn rewind(&mut self, tick: Tick) -> Option<&T> {
        let wanted = tick.0.saturating_add(1);
        for (tag, _) in &mut self.slots {
            if *tag > wanted {
                *tag = 0;
            }
        }
        self.find(tick)
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
        let mut snapshots = Snapshots::<u32>::new(3);
        for tick in 0..5 {
            *snapshots.place(Tick(tick)).unwrap() = tick * 10;
        }
        assert_eq!(snapshots.rewind(Tick(1)), None);
        for tick in 2..5 {
            *snapshots.place(Tick(tick)).unwrap() = tick * 10;
        }
        assert_eq!(snapshots.rewind(Tick(3)), Some(&30));
        *snapshots.place(Tick(5)).unwrap() = 50;
        assert_eq!(snapshots.rewind(Tick(4)), None, "void since tick 3");
        assert_eq!(snapshots.rewind(Tick(2)), Some(&20), "and not forgotten");
    }
}
