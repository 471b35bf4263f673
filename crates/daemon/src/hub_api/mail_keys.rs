//! Mails that carry an `Idempotency-Key`: a repetition is not stored again.
//!
//! The window is in memory: after a restart of the hub a repetition is stored as a new mail.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hub::{Name, SenderSeq};
use wire::Instant;

/// Identifies a mail of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailKey {
    /// The name of the API key, which has a share.
    pub(super) owner: Name,
    /// Digest of the API key and the `Idempotency-Key`.
    pub(super) id: [u8; 32],
    /// Digest of player, time to live and body: another mail must not have the same key.
    pub(super) mail: [u8; 32],
}

/// Limits of [`MailKeys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailKeyLimits {
    /// How long the key of a stored mail is known.
    pub(super) window: Duration,
    /// Keys in all; about 200 bytes each.
    pub(super) keys_max: usize,
    /// Keys of one API key.
    pub(super) keys_each_max: usize,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing; it is open from now on.
    New,
    /// Its mail is not answered yet.
    Open(SenderSeq),
    Stored,
    /// It was used for another mail.
    OtherMail,
    /// As many keys as allowed are in the window.
    Full,
}

#[derive(Debug)]
struct Entry {
    owner: Name,
    mail: [u8; 32],
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The number of the mail; `None` until it is sent.
    Open(Option<SenderSeq>),
    Stored,
}

/// The keys in the window, and those of open mails.
#[derive(Debug)]
pub(super) struct MailKeys {
    limits: MailKeyLimits,
    entries: BTreeMap<[u8; 32], Entry>,
    /// Stored mails, oldest first.
    stored: VecDeque<(Instant, [u8; 32])>,
    owners: BTreeMap<Name, usize>,
}

impl MailKeys {
    pub(super) const fn new(limits: MailKeyLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            stored: VecDeque::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Looks a key up, and opens it if it is new.
    pub(super) fn begin(&mut self, now: Instant, key: &MailKey) -> Known {
        self.expire(now);
        let count = self.owners.get(&key.owner).copied().unwrap_or_default();
        let is_full =
            self.entries.len() >= self.limits.keys_max || count >= self.limits.keys_each_max;
        match self.entries.entry(key.id) {
            MapEntry::Occupied(found) if found.get().mail != key.mail => Known::OtherMail,
            MapEntry::Occupied(found) => match found.get().state {
                State::Stored => Known::Stored,
                State::Open(Some(seq)) => Known::Open(seq),
                State::Open(None) => Known::Full,
            },
            MapEntry::Vacant(_) if is_full => Known::Full,
            MapEntry::Vacant(place) => {
                place.insert(Entry {
                    owner: key.owner,
                    mail: key.mail,
                    state: State::Open(None),
                });
                self.owners.insert(key.owner, count.saturating_add(1));
                Known::New
            }
        }
    }

    /// The mail of a key was sent with this number.
    pub(super) fn sent(&mut self, id: [u8; 32], seq: SenderSeq) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = State::Open(Some(seq));
        }
    }

    /// The mail of a key is stored: its window begins.
    pub(super) fn stored(&mut self, now: Instant, id: [u8; 32]) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = State::Stored;
            self.stored.push_back((now, id));
        }
    }

    /// The mail of a key was not stored: the key may be used again.
    pub(super) fn forget(&mut self, id: [u8; 32]) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let MapEntry::Occupied(mut count) = self.owners.entry(entry.owner) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = self.stored.front().copied()
            && now.saturating_since(at) >= self.limits.window
        {
            self.stored.pop_front();
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MailKeyLimits = MailKeyLimits {
        window: Duration::from_secs(10),
        keys_max: 4,
        keys_each_max: 3,
    };

    const START: Instant = Instant::ZERO;

    fn key(owner: &str, id: u8) -> MailKey {
        MailKey {
            owner: Name::new(owner).unwrap(),
            id: [id; 32],
            mail: [id; 32],
        }
    }

    #[test]
    fn ha8_a_key_is_known_from_its_first_mail_to_the_end_of_its_window() {
        let mut keys = MailKeys::new(LIMITS);
        let shop = key("shop", 1);
        assert_eq!(keys.begin(START, &shop), Known::New);
        keys.sent(shop.id, SenderSeq(7));
        assert_eq!(keys.begin(START, &shop), Known::Open(SenderSeq(7)));
        let other = MailKey {
            mail: [9; 32],
            ..shop
        };
        assert_eq!(keys.begin(START, &other), Known::OtherMail);
        let later = START + LIMITS.window * 2;
        assert_eq!(
            keys.begin(later, &shop),
            Known::Open(SenderSeq(7)),
            "no answer yet"
        );
        keys.stored(later, shop.id);
        let end = later + LIMITS.window;
        assert_eq!(keys.begin(later + LIMITS.window / 2, &shop), Known::Stored);
        assert_eq!(keys.begin(end, &shop), Known::New);
        // A mail that was refused leaves nothing.
        keys.forget(shop.id);
        assert!(keys.entries.is_empty() && keys.owners.is_empty() && keys.stored.is_empty());
    }

    #[test]
    fn ha8_mail_keys_max_and_mail_keys_each_max_are_limits() {
        let mut keys = MailKeys::new(LIMITS);
        for id in 1..=3 {
            assert_eq!(keys.begin(START, &key("shop", id)), Known::New);
        }
        assert_eq!(keys.begin(START, &key("shop", 4)), Known::Full);
        assert_eq!(keys.begin(START, &key("web", 5)), Known::New);
        assert_eq!(keys.begin(START, &key("web", 6)), Known::Full);
        keys.stored(START, [1; 32]);
        assert_eq!(
            keys.begin(START + LIMITS.window, &key("shop", 4)),
            Known::New
        );
    }
}
