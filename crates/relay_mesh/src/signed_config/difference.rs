//! What one document changes of another.

use std::collections::BTreeSet;

use super::document::Document;

/// What a new document changes: a node touches what stands here, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Games that were not there.
    pub added: BTreeSet<String>,
    /// Games that are gone.
    pub removed: BTreeSet<String>,
    /// Games of which anything is another.
    pub changed: BTreeSet<String>,
    /// Games as they were: their ports and flows go on.
    pub unchanged: BTreeSet<String>,
    /// Whether members or their roles are others.
    pub has_other_members: bool,
    /// Whether admins or their threshold are others.
    pub has_other_admins: bool,
}

impl Difference {
    /// Compares `new` with the document before it; where there was none, all its games are added.
    #[must_use]
    pub fn between(old: Option<&Document>, new: &Document) -> Self {
        let mut difference = Self::default();
        for (name, rule) in &new.games {
            let before = old.and_then(|old| old.games.get(name));
            let list = match before {
                None => &mut difference.added,
                Some(before) if before == rule => &mut difference.unchanged,
                Some(_) => &mut difference.changed,
            };
            list.insert(name.clone());
        }
        if let Some(old) = old {
            let names = old.games.keys();
            let gone = names.filter(|name| !new.games.contains_key(*name));
            difference.removed.extend(gone.cloned());
        }
        difference.has_other_members = old.is_none_or(|old| old.members != new.members);
        difference.has_other_admins = old.is_none_or(|old| old.admins != new.admins);
        difference
    }
}
