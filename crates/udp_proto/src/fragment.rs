//! Messages too long for one frame: how they are split, and what may be put together again.

mod blocks;

use core::fmt;
use core::time::Duration;

use blocks::Blocks;

/// Bytes in each fragment but the last; TWP/1, section 7.1.
///
/// With its header, 1,129 bytes. A datagram of 1,200 has room for it and 42 bytes of others.
pub const FRAGMENT_LEN: usize = 1_120;

/// What unreliable reassembly may be charged for in one session, bytes; TWP/1, section 7.1.
pub const UNRELIABLE_BUDGET: usize = 64 << 10;

/// Unreliable messages that a session puts together at a time; TWP/1, section 7.1.
pub const UNRELIABLE_MESSAGES_MAX: usize = 8;

/// How long a split unreliable message is waited for; docs/protocol.md, section 8.
///
/// Its sender relies on it: it sends no part again that would come later.
pub const REASSEMBLY_LIFE: Duration = Duration::from_secs(2);

/// Returns how many fragments a message of `len` bytes has; 0 where `len` is 0.
#[must_use]
pub const fn fragment_count(len: usize) -> usize {
    len.div_ceil(FRAGMENT_LEN)
}

/// Bytes in the last fragment of a message of `len` bytes.
pub(crate) const fn tail_len(len: usize) -> usize {
    match len.checked_rem(FRAGMENT_LEN) {
        Some(0) | None => FRAGMENT_LEN,
        Some(tail) => tail,
    }
}

/// What the reassembly of a message of `count` fragments is charged beyond the bytes it holds.
#[must_use]
pub const fn fragment_cost(count: u16) -> usize {
    64_usize.saturating_add(count as usize / 8)
}

/// The place of a fragment in its message, as its header says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Counted from 0.
    pub index: u16,
    /// Fragments that the message has.
    pub count: u16,
}

/// A fragment whose header and length fit each other and its channel.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Below `count`.
    index: u16,
    /// 2 or more; 1 only for a message that was never split.
    count: u16,
    /// [`FRAGMENT_LEN`] bytes, in the last fragment 1 to so many.
    data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Checks what came against a channel of messages of up to `message_bytes_max`.
    ///
    /// # Errors
    ///
    /// [`FragmentError`], with which the session ends.
    pub fn new(
        position: Position,
        data: &'a [u8],
        message_bytes_max: usize,
    ) -> Result<Self, FragmentError> {
        let Position { index, count } = position;
        let before_last = count.saturating_sub(1);
        if count < 2 || usize::from(count) > fragment_count(message_bytes_max) {
            return Err(FragmentError::Count(count));
        }
        if index >= count {
            return Err(FragmentError::Index { index, count });
        }
        let allowed = if index < before_last {
            data.len() == FRAGMENT_LEN
        } else {
            let before = usize::from(before_last).saturating_mul(FRAGMENT_LEN);
            let max = message_bytes_max.saturating_sub(before).min(FRAGMENT_LEN);
            (1..=max).contains(&data.len())
        };
        if !allowed {
            return Err(FragmentError::Length(data.len()));
        }
        Ok(Self { index, count, data })
    }

    /// Makes the one fragment of a message that was never split.
    pub(crate) const fn whole(data: &'a [u8]) -> Self {
        Self {
            index: 0,
            count: 1,
            data,
        }
    }

    /// Returns its bytes.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns how many fragments its message has.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Returns whether it is the last of its message.
    const fn is_last(&self) -> bool {
        self.index.saturating_add(1) == self.count
    }
}

/// Holds the fragments of any number of messages until their owners take or drop them.
///
/// It knows neither channels nor budgets; those who call it do. Memory follows what arrived, never
/// what a header announced.
#[derive(Debug)]
pub struct Reassembler {
    /// Where the bytes of fragments of [`FRAGMENT_LEN`] are, each in a block of its own.
    full: Blocks<FRAGMENT_LEN>,
    /// Where those of all others are.
    short: Blocks<SHORT_LEN>,
    /// Messages begun, and free places among them.
    messages: Vec<Partial>,
    /// The free places.
    free: Vec<Key>,
}

/// Names a message that a [`Reassembler`] holds, until it is taken or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

/// What a [`Reassembler`] thinks of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not held yet.
    New,
    /// Held already, to be ignored.
    Repeated,
}

impl Reassembler {
    /// Makes one that holds nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            full: Blocks::new(),
            short: Blocks::new(),
            messages: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Begins a message of `count` fragments.
    pub fn begin(&mut self, count: u16) -> Key {
        let fresh = Partial {
            count,
            ..Partial::default()
        };
        if let Some(key) = self.free.pop() {
            if let Some(message) = self.get_mut(key) {
                let pieces = core::mem::take(&mut message.pieces);
                *message = Partial { pieces, ..fresh };
            }
            return key;
        }
        let key = Key(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
        self.messages.push(fresh);
        key
    }

    /// Says what [`insert`](Self::insert) would do with `fragment`.
    ///
    /// # Errors
    ///
    /// [`FragmentError::Contradiction`] where it repeats another of the message with another count
    /// or size.
    pub fn admit(&self, key: Key, fragment: &Fragment<'_>) -> Result<Admission, FragmentError> {
        let message = self.get(key).ok_or(FragmentError::Contradiction)?;
        if message.count != fragment.count {
            return Err(FragmentError::Contradiction);
        }
        if message.find(fragment.index).is_err() {
            return Ok(Admission::New);
        }
        if fragment.is_last() && message.tail_len.map(usize::from) != Some(fragment.data.len()) {
            return Err(FragmentError::Contradiction);
        }
        Ok(Admission::Repeated)
    }

    /// Stores a fragment that [`admit`](Self::admit) called new, and returns whether the message is
    /// complete. Others are ignored.
    pub fn insert(&mut self, key: Key, fragment: &Fragment<'_>) -> bool {
        if self.admit(key, fragment) != Ok(Admission::New) {
            return self.is_complete(key);
        }
        let first = if fragment.data.len() == FRAGMENT_LEN {
            self.full.store(fragment.data)
        } else {
            self.short.store(fragment.data)
        };
        let Some(message) = self.get_mut(key) else {
            return false;
        };
        if fragment.is_last() {
            message.tail_len = u16::try_from(fragment.data.len()).ok();
        }
        let place = message.find(fragment.index).unwrap_or_else(|place| place);
        let index = fragment.index;
        message.pieces.insert(place, Piece { first, index });
        message.is_complete()
    }

    /// Hands the message's bytes to `sink` in order, and forgets it.
    pub fn take(&mut self, key: Key, sink: &mut impl FnMut(&[u8])) {
        if let Some(message) = self.get(key) {
            for piece in &message.pieces {
                match message.piece_len(*piece) {
                    FRAGMENT_LEN => self.full.read(piece.first, FRAGMENT_LEN, sink),
                    len => self.short.read(piece.first, len, sink),
                }
            }
        }
        self.discard(key);
    }

    /// Forgets the message.
    pub fn discard(&mut self, key: Key) {
        let place = usize::try_from(key.0).unwrap_or(usize::MAX);
        let Some(message) = self.messages.get_mut(place) else {
            return;
        };
        for piece in &message.pieces {
            match message.piece_len(*piece) {
                FRAGMENT_LEN => self.full.release(piece.first),
                _ => self.short.release(piece.first),
            }
        }
        // Short lists are kept, so that a steady load allocates nothing; long ones are not, else
        // each place would keep the longest message it ever saw.
        if message.pieces.capacity() <= PIECES_KEPT {
            message.pieces.clear();
        } else {
            message.pieces = Vec::new();
        }
        self.free.push(key);
    }

    /// Returns whether nothing is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.free.len() == self.messages.len()
    }

    /// Gives back all memory, where nothing is held.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.messages = Vec::new();
            self.free = Vec::new();
            self.full.shrink();
            self.short.shrink();
        }
    }

    /// Gives back what the stores keep where that is more than twice what they hold. What they hold
    /// moves for it.
    pub(crate) fn tidy(&mut self) {
        if !self.full.is_sparse() && !self.short.is_sparse() {
            return;
        }
        let mut full = self.full.is_sparse().then(|| self.full.fresh());
        let mut short = self.short.is_sparse().then(|| self.short.fresh());
        let mut bytes = Vec::new();
        for message in &mut self.messages {
            let (count, tail_len) = (message.count, message.tail_len);
            for piece in &mut message.pieces {
                let (first, len) = (piece.first, piece.len(count, tail_len));
                bytes.clear();
                let mut copy = |part: &[u8]| bytes.extend_from_slice(part);
                if len == FRAGMENT_LEN {
                    let Some(full) = &mut full else { continue };
                    self.full.read(first, len, &mut copy);
                    piece.first = full.store(&bytes);
                } else {
                    let Some(short) = &mut short else { continue };
                    self.short.read(first, len, &mut copy);
                    piece.first = short.store(&bytes);
                }
            }
        }
        if let Some(full) = full {
            self.full = full;
        }
        if let Some(short) = short {
            self.short = short;
        }
    }

    /// Returns whether all fragments are there.
    #[must_use]
    pub fn is_complete(&self, key: Key) -> bool {
        self.get(key).is_some_and(Partial::is_complete)
    }

    /// Returns how many bytes of the message it holds.
    #[must_use]
    pub fn held_len(&self, key: Key) -> usize {
        self.get(key).map_or(0, Partial::held_len)
    }

    /// Returns what the message is charged: its bytes held, 64, and 1 for 8 fragments announced.
    #[must_use]
    pub fn cost(&self, key: Key) -> usize {
        self.get(key).map_or(0, |message| {
            message
                .held_len()
                .saturating_add(fragment_cost(message.count))
        })
    }

    /// Returns the heap memory it keeps, bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let pieces = self
            .messages
            .iter()
            .map(|message| message.pieces.capacity())
            .sum::<usize>()
            .saturating_mul(size_of::<Piece>());
        let messages = self
            .messages
            .capacity()
            .saturating_mul(size_of::<Partial>());
        let free = self.free.capacity().saturating_mul(size_of::<Key>());
        [pieces, messages, free, self.stores_memory()]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Returns the heap memory that the bytes of fragments are kept in.
    pub(crate) const fn stores_memory(&self) -> usize {
        self.full.memory().saturating_add(self.short.memory())
    }

    /// Returns the message of `key`.
    fn get(&self, key: Key) -> Option<&Partial> {
        self.messages.get(usize::try_from(key.0).ok()?)
    }

    /// Returns the message of `key`, to change it.
    fn get_mut(&mut self, key: Key) -> Option<&mut Partial> {
        self.messages.get_mut(usize::try_from(key.0).ok()?)
    }
}

impl Default for Reassembler {
    fn default() -> Self {
        Self::new()
    }
}

/// A message of which some fragments are there.
#[derive(Debug, Default)]
struct Partial {
    /// Fragments that it has.
    count: u16,
    /// Bytes of the last one, once it came.
    tail_len: Option<u16>,
    /// What is there, by index.
    pieces: Vec<Piece>,
}

impl Partial {
    /// Returns the place of fragment `index` in `pieces`, as an error where it is to be inserted.
    fn find(&self, index: u16) -> Result<usize, usize> {
        // Most come in order.
        match self.pieces.last() {
            Some(last) if last.index >= index => self
                .pieces
                .binary_search_by_key(&index, |piece| piece.index),
            Some(_) | None => Err(self.pieces.len()),
        }
    }

    /// Returns whether all fragments are there.
    fn is_complete(&self) -> bool {
        self.pieces.len() == usize::from(self.count)
    }

    /// Returns how many bytes are there.
    fn held_len(&self) -> usize {
        let full = self
            .pieces
            .len()
            .saturating_sub(self.tail_len.is_some().into());
        full.saturating_mul(FRAGMENT_LEN)
            .saturating_add(self.tail_len.map_or(0, usize::from))
    }

    /// Returns the length of one of its fragments.
    fn piece_len(&self, piece: Piece) -> usize {
        piece.len(self.count, self.tail_len)
    }
}

/// A fragment held.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its first block.
    first: u32,
    /// Its index in the message.
    index: u16,
}

impl Piece {
    /// Returns its length, where its message has `count` fragments and the last of them is so long.
    fn len(self, count: u16, tail_len: Option<u16>) -> usize {
        if self.index.saturating_add(1) == count {
            tail_len.map_or(0, usize::from)
        } else {
            FRAGMENT_LEN
        }
    }
}

/// Bytes in a block for what is shorter than a full fragment; with the link, 60.
const SHORT_LEN: usize = 56;

/// Places for pieces that a free [`Partial`] keeps.
const PIECES_KEPT: usize = 4;

/// How a fragment contradicts its header, its channel or an earlier fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FragmentError {
    /// So many fragments are too few to be one of, or more than the channel's longest message has.
    Count(u16),
    /// There is no such fragment.
    Index {
        /// What it says it is.
        index: u16,
        /// How many it says there are.
        count: u16,
    },
    /// So many bytes are not what a fragment in its place has.
    Length(usize),
    /// Its count or length is another than that of an earlier fragment of the message.
    Contradiction,
}

impl fmt::Display for FragmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "fragment count {count} is out of range"),
            Self::Index { index, count } => {
                write!(
                    f,
                    "fragment index {index} of a message of {count} fragments"
                )
            }
            Self::Length(len) => write!(
                f,
                "fragment of {len} bytes is not as long as its place asks"
            ),
            Self::Contradiction => f.write_str("fragment contradicts an earlier one"),
        }
    }
}

impl core::error::Error for FragmentError {}

#[cfg(test)]
mod tests;
