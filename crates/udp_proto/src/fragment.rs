//! Fragmentation of long messages, and their reassembly.

use core::time::Duration;

/// Bytes in each fragment but the last; TWP/1, section 7.1.
///
/// 1,129 bytes with its header, which leaves 42 bytes for other frames in a datagram of 1,200.
pub const FRAGMENT_LEN: usize = 1_120;

/// Most bytes charged to unreliable reassembly in one session; TWP/1, section 7.1.
pub const UNRELIABLE_BUDGET: usize = 64 << 10;

/// Most incomplete unreliable messages in one session; TWP/1, section 7.1.
pub const UNRELIABLE_MESSAGES_MAX: usize = 8;

/// How long to wait for the fragments of an unreliable message; its sender relies on it.
pub const REASSEMBLY_LIFE: Duration = Duration::from_secs(2);

/// Returns the number of fragments of a message of `len` bytes; 0 if `len` is 0.
#[must_use]
pub const fn fragment_count(len: usize) -> usize {
    len.div_ceil(FRAGMENT_LEN)
}

/// Length of the last fragment of a message of `len` bytes.
pub(crate) const fn tail_len(len: usize) -> usize {
    match len.checked_rem(FRAGMENT_LEN) {
        Some(0) | None => FRAGMENT_LEN,
        Some(tail) => tail,
    }
}

/// What an incomplete message of `count` fragments is charged beyond its bytes.
#[must_use]
pub const fn fragment_cost(count: u16) -> usize {
    64_usize.saturating_add(count as usize / 8)
}

/// The position of a fragment in its message, as in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Counted from 0.
    pub index: u16,
    /// Number of fragments of the message.
    pub count: u16,
}

/// A fragment with a valid header and length for its channel.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Below `count`.
    index: u16,
    /// At least 2; 1 only for a message that was not split.
    count: u16,
    /// [`FRAGMENT_LEN`] bytes; 1 to as many in the last fragment.
    data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Checks a fragment against a channel of messages of up to `message_bytes_max`.
    ///
    /// # Errors
    ///
    /// [`FragmentError`], which ends the session.
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

    /// Returns the number of fragments of its message.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    const fn is_last(&self) -> bool {
        self.index.saturating_add(1) == self.count
    }
}

/// Holds the fragments of incomplete messages until they are taken or discarded. Memory follows the
/// received bytes, not the announced length.
#[derive(Debug)]
pub struct Reassembler {
    /// Fragments of [`FRAGMENT_LEN`] bytes, one block each.
    full: Blocks<FRAGMENT_LEN>,
    /// All other fragments.
    short: Blocks<SHORT_LEN>,
    /// Messages, and free entries.
    messages: Vec<Partial>,
    free: Vec<Key>,
}

/// Identifies a message in a [`Reassembler`] until it is taken or discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

/// Whether a fragment is new to a [`Reassembler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not held yet.
    New,
    /// A duplicate, to be ignored.
    Repeated,
}

impl Reassembler {
    /// Creates an empty reassembler.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            full: Blocks::new(),
            short: Blocks::new(),
            messages: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Starts a message of `count` fragments.
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

    /// Returns whether [`insert`](Self::insert) would store `fragment`.
    ///
    /// # Errors
    ///
    /// [`FragmentError::Contradiction`] if an earlier fragment of the message has another count or
    /// size.
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

    /// Stores a fragment that [`admit`](Self::admit) called new; ignores others. Returns whether
    /// the message is complete.
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

    /// Passes the message's bytes to `sink` in order, and removes it.
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

    /// Removes the message.
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
        // Short lists are kept, so that a steady load allocates nothing. Long ones are not, or each
        // entry would keep the size of its longest message.
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

    /// Releases all memory if nothing is held.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.messages = Vec::new();
            self.free = Vec::new();
            self.full.shrink();
            self.short.shrink();
        }
    }

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

    /// Returns whether all fragments are present.
    #[must_use]
    pub fn is_complete(&self, key: Key) -> bool {
        self.get(key).is_some_and(Partial::is_complete)
    }

    /// Returns the received bytes of the message.
    #[must_use]
    pub fn held_len(&self, key: Key) -> usize {
        self.get(key).map_or(0, Partial::held_len)
    }

    /// Returns the charge of the message: its received bytes, 64, and 1 per 8 announced fragments.
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

    pub(crate) const fn stores_memory(&self) -> usize {
        self.full.memory().saturating_add(self.short.memory())
    }

    fn get(&self, key: Key) -> Option<&Partial> {
        self.messages.get(usize::try_from(key.0).ok()?)
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut Partial> {
        self.messages.get_mut(usize::try_from(key.0).ok()?)
    }
}

impl Default for Reassembler {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Default)]
struct Partial {
    count: u16,
    /// Length of the last fragment, once received.
    tail_len: Option<u16>,
    /// Received fragments, by index.
    pieces: Vec<Piece>,
}

impl Partial {
    /// Returns the position of fragment `index` in `pieces`, or its insertion point.
    fn find(&self, index: u16) -> Result<usize, usize> {
        // Most arrive in order.
        match self.pieces.last() {
            Some(last) if last.index >= index => self
                .pieces
                .binary_search_by_key(&index, |piece| piece.index),
            Some(_) | None => Err(self.pieces.len()),
        }
    }

    fn is_complete(&self) -> bool {
        self.pieces.len() == usize::from(self.count)
    }

    fn held_len(&self) -> usize {
        let full = self
            .pieces
            .len()
            .saturating_sub(self.tail_len.is_some().into());
        full.saturating_mul(FRAGMENT_LEN)
            .saturating_add(self.tail_len.map_or(0, usize::from))
    }

    fn piece_len(&self, piece: Piece) -> usize {
        piece.len(self.count, self.tail_len)
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its first block.
    first: u32,
    index: u16,
}

impl Piece {
    /// Returns its length in a message of `count` fragments with a last one of `tail_len`.
    fn len(self, count: u16, tail_len: Option<u16>) -> usize {
        if self.index.saturating_add(1) == count {
            tail_len.map_or(0, usize::from)
        } else {
            FRAGMENT_LEN
        }
    }
}

/// Bytes in a block for shorter fragments; with the link, 60.
const SHORT_LEN: usize = 56;

/// Capacity for pieces that a free [`Partial`] keeps.
const PIECES_KEPT: usize = 4;

/// How a fragment violates its header, its channel or an earlier fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FragmentError {
    /// This count is too low for a split message, or above the channel's limit.
    Count(u16),
    /// The index is not below the count.
    Index {
        /// The index.
        index: u16,
        /// The count.
        count: u16,
    },
    /// This length is wrong for its position.
    Length(usize),
    /// Count or length differ from an earlier fragment of the message.
    Contradiction,
}

wire::error_text! { FragmentError {
    Self::Count(count) => "fragment count {count} is out of range",
    Self::Index { index, count } => "fragment index {index} of a message of {count} fragments",
    Self::Length(len) => "fragment of {len} bytes is not as long as its place asks",
    Self::Contradiction => "fragment contradicts an earlier one",
}}

/// Byte strings in chained blocks of `LEN` bytes, which are reused: a string wastes less than one
/// block, and a steady load allocates nothing.
#[derive(Debug)]
struct Blocks<const LEN: usize> {
    all: Vec<Block<LEN>>,
    free: u32,
    held: usize,
}

impl<const LEN: usize> Blocks<LEN> {
    const fn new() -> Self {
        Self {
            all: Vec::new(),
            free: NONE,
            held: 0,
        }
    }

    /// Stores a copy of `bytes` and returns its first block.
    fn store(&mut self, bytes: &[u8]) -> u32 {
        // From the last block to the first, since each links to its successor.
        let mut follower = NONE;
        for chunk in bytes.chunks(LEN).rev() {
            let index = self.take_free();
            if let Some(block) = self.get_mut(index) {
                if let Some(data) = block.data.get_mut(..chunk.len()) {
                    data.copy_from_slice(chunk);
                }
                block.next = follower;
                follower = index;
            }
        }
        follower
    }

    /// Passes the string of `len` bytes that starts at `first` to `sink`, block by block.
    fn read(&self, first: u32, len: usize, sink: &mut impl FnMut(&[u8])) {
        let (mut index, mut left) = (first, len);
        while let Some(block) = self.get(index) {
            let taken = left.min(LEN);
            sink(block.data.get(..taken).unwrap_or_default());
            left = left.saturating_sub(taken);
            index = block.next;
        }
    }

    fn release(&mut self, first: u32) {
        let mut index = first;
        while let Some(block) = self.get(index) {
            let next = block.next;
            let free = self.free;
            if let Some(block) = self.get_mut(index) {
                block.next = free;
            }
            self.free = index;
            self.held = self.held.saturating_sub(1);
            index = next;
        }
    }

    fn shrink(&mut self) {
        if self.held == 0 {
            *self = Self::new();
        }
    }

    /// Returns whether its capacity is more than twice its content, and large enough to matter.
    const fn is_sparse(&self) -> bool {
        self.all.capacity() / 2 > self.held && self.all.capacity() > FEW
    }

    fn fresh(&self) -> Self {
        Self {
            all: Vec::with_capacity(self.held),
            ..Self::new()
        }
    }

    #[cfg(test)]
    const fn held_bytes(&self) -> usize {
        self.held.saturating_mul(size_of::<Block<LEN>>())
    }

    const fn memory(&self) -> usize {
        self.all.capacity().saturating_mul(size_of::<Block<LEN>>())
    }

    fn take_free(&mut self) -> u32 {
        self.held = self.held.saturating_add(1);
        let index = self.free;
        if let Some(block) = self.get(index) {
            self.free = block.next;
            return index;
        }
        let len = self.all.len();
        if len == self.all.capacity() {
            let least = const { if LEN < 100 { 8 } else { 1 } };
            self.all.reserve_exact((len / 2).max(least));
        }
        self.all.push(Block {
            data: [0; LEN],
            next: NONE,
        });
        u32::try_from(len).unwrap_or(NONE)
    }

    fn get(&self, index: u32) -> Option<&Block<LEN>> {
        self.all.get(usize::try_from(index).ok()?)
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Block<LEN>> {
        self.all.get_mut(usize::try_from(index).ok()?)
    }
}

#[derive(Debug)]
struct Block<const LEN: usize> {
    /// Only the first bytes count in the last block of a string.
    data: [u8; LEN],
    next: u32,
}

/// No block. Budgets keep the number of blocks far below it.
const NONE: u32 = u32::MAX;

/// Blocks kept in any case: two steps of growth.
const FEW: usize = 16;

#[cfg(test)]
mod tests;
