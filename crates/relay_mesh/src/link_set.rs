//! A set of links.

use crate::link::LinkId;

/// Which links are meant, a bit each: a pass over thousands of labels costs it no tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkSet(Vec<u64>);

impl LinkSet {
    pub(crate) fn insert(&mut self, link: LinkId) {
        let (word, bit) = place(link);
        if self.0.len() <= word {
            self.0.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn contains(&self, link: LinkId) -> bool {
        let (word, bit) = place(link);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Extend<LinkId> for LinkSet {
    fn extend<I: IntoIterator<Item = LinkId>>(&mut self, links: I) {
        for link in links {
            self.insert(link);
        }
    }
}

fn place(link: LinkId) -> (usize, u64) {
    (usize::from(link.0 / 64), 1 << (link.0 % 64))
}

#[cfg(test)]
impl LinkSet {
    /// The numbers of all, in order.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        let all = 0..=u16::MAX;
        all.filter(|link| self.contains(LinkId(*link))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_what_was_put_in() {
        let mut set = LinkSet::default();
        assert!(set.numbers().is_empty());
        set.extend([0, 63, 64, 1_000, u16::MAX, 64].map(LinkId));
        assert_eq!(set.numbers(), [0, 63, 64, 1_000, u16::MAX]);
        let mut other = LinkSet::default();
        other.extend([1, 64].map(LinkId));
        other.add_all(&set);
        assert_eq!(other.numbers(), [0, 1, 63, 64, 1_000, u16::MAX]);
    }
}
