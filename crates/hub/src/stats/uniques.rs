//! Number of unique players in bounded memory, mergeable (`HyperLogLog`, Flajolet et al. 2007).
//!
//! Up to 512 players are kept by 32 bits of their hash, so nearly exactly; then 4,096 registers of one byte
//! give a standard error of 1.04 / 64 = 1.6 %, up to 100 million players. The estimate is the
//! improved one of Ertl (2017, "New cardinality estimation algorithms for `HyperLogLog`
//! sketches",
//! algorithm 6): it needs no table against bias.
//!
//! The hash has no key: a node that invents ids can also invent a number of players.

use wire::{ClientId, Reader, Writer};

use super::batch::BatchError;
use super::number::float_of_u64;
use super::varint;

/// Most hashes kept.
const SPARSE_MAX: usize = 512;

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 12;

const REGISTERS: usize = 1 << INDEX_BITS;

/// Bits of a hash behind the index; a register holds at most one more.
const REST_BITS: u32 = 32 - INDEX_BITS;

/// Memory of one hash, bytes.
const HASH_BYTES: usize = size_of::<u32>();

const SPARSE: u8 = 0;
const DENSE: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uniques {
    /// Hashes, sorted.
    Sparse(Vec<u32>),
    /// The registers: for each index, the most leading zeros of a rest, and 1; 0 if there is none.
    Dense(Box<[u8]>),
}

impl Default for Uniques {
    fn default() -> Self {
        Self::Sparse(Vec::new())
    }
}

impl Uniques {
    /// Most memory, bytes.
    pub(super) const BYTES_MAX: usize = REGISTERS;

    /// Creates the set of some players.
    pub(super) fn of(players: impl Iterator<Item = ClientId>) -> Self {
        let mut hashes: Vec<_> = players.map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let is_dense = hashes.len() > SPARSE_MAX;
        let mut uniques = Self::Sparse(hashes);
        if is_dense {
            uniques.make_dense();
        }
        uniques
    }

    /// Adds a player, and takes memory from `room`. Returns false if there is no room.
    pub(super) fn add(&mut self, player: ClientId, room: &mut usize) -> bool {
        let hash = hash(player);
        match self {
            Self::Dense(registers) => raise(registers, hash),
            Self::Sparse(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else {
                    return true;
                };
                let is_full = hashes.len() >= SPARSE_MAX;
                let growth = if is_full {
                    REGISTERS.saturating_sub(HASH_BYTES.saturating_mul(SPARSE_MAX))
                } else {
                    HASH_BYTES
                };
                let Some(left) = room.checked_sub(growth) else {
                    return false;
                };
                *room = left;
                if is_full {
                    raise(self.make_dense(), hash);
                } else {
                    hashes.insert(at, hash);
                }
            }
        }
        true
    }

    pub(super) fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Sparse(ours), Self::Sparse(theirs)) => {
                let merged = union(ours, theirs);
                let is_dense = merged.len() > SPARSE_MAX;
                *ours = merged;
                if is_dense {
                    self.make_dense();
                }
            }
            (Self::Dense(ours), Self::Sparse(theirs)) => {
                raise_all(ours, theirs);
            }
            (Self::Sparse(_) | Self::Dense(_), Self::Dense(theirs)) => {
                for (ours, theirs) in self.make_dense().iter_mut().zip(theirs) {
                    *ours = (*ours).max(*theirs);
                }
            }
        }
    }

    /// Returns the estimated number, a whole one.
    pub(super) fn estimate(&self) -> f64 {
        match self {
            Self::Sparse(hashes) => float_of_u64(u64::try_from(hashes.len()).unwrap_or(0)),
            Self::Dense(registers) => estimate(registers),
        }
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        match self {
            Self::Sparse(hashes) => hashes.len().saturating_mul(HASH_BYTES),
            Self::Dense(_) => REGISTERS,
        }
    }

    fn make_dense(&mut self) -> &mut [u8] {
        if let Self::Sparse(hashes) = self {
            let mut registers = vec![0; REGISTERS].into_boxed_slice();
            for hash in hashes {
                raise(&mut registers, *hash);
            }
            *self = Self::Dense(registers);
        }
        match self {
            Self::Dense(registers) => registers,
            Self::Sparse(_) => &mut [],
        }
    }

    /// Encoding: 0, the count and the differences of the hashes; or 1 and the registers.
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Sparse(hashes) => {
                out.u8(SPARSE);
                varint::write_len(hashes.len(), out);
                let mut before = 0;
                for hash in hashes {
                    varint::write(u64::from(hash.saturating_sub(before)), out);
                    before = *hash;
                }
            }
            Self::Dense(registers) => {
                out.u8(DENSE);
                out.bytes(registers);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, BatchError> {
        match reader.u8()? {
            SPARSE => {
                let count = varint::read_len(reader, SPARSE_MAX)?;
                let mut hashes: Vec<u32> = Vec::new();
                for _ in 0..count {
                    let step = varint::read(reader)?;
                    let before = hashes.last().copied();
                    let hash = step.checked_add(u64::from(before.unwrap_or(0)));
                    let hash = hash.and_then(|hash| u32::try_from(hash).ok());
                    let hash = hash.ok_or(BatchError::Number)?;
                    if before == Some(hash) {
                        return Err(BatchError::Repeated);
                    }
                    hashes.push(hash);
                }
                Ok(Self::Sparse(hashes))
            }
            DENSE => {
                let registers = reader.bytes(REGISTERS)?;
                if registers.iter().any(|it| u32::from(*it) > REST_BITS + 1) {
                    return Err(BatchError::Number);
                }
                Ok(Self::Dense(registers.into()))
            }
            form => Err(BatchError::Head(form)),
        }
    }
}

/// Returns the sorted hashes of both, each once.
fn union(ours: &[u32], theirs: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(ours.len().saturating_add(theirs.len()));
    unite(ours, theirs, &mut merged, usize::MAX);
    merged
}

/// Replaces `merged` by the sorted hashes of both, each once. Stops when there are more than `max`;
/// then some are missing.
fn unite(ours: &[u32], theirs: &[u32], merged: &mut Vec<u32>, max: usize) {
    merged.clear();
    let (mut at, mut their_at) = (0_usize, 0_usize);
    while let (Some(own), Some(other)) = (ours.get(at), theirs.get(their_at)) {
        if merged.len() > max {
            return;
        }
        // Without a branch that depends on the hashes: it would be guessed wrongly.
        merged.push(*own.min(other));
        at = at.saturating_add(usize::from(own <= other));
        their_at = their_at.saturating_add(usize::from(other <= own));
    }
    merged.extend(ours.iter().skip(at));
    merged.extend(theirs.iter().skip(their_at));
}

/// The players of several sets, for one row after the other.
#[derive(Debug, Default)]
pub(super) struct UniquesSum {
    /// Hashes, sorted, while there are few.
    hashes: Vec<u32>,
    spare: Vec<u32>,
    /// The registers; allocated by the first sum with many players.
    registers: Vec<u8>,
    is_dense: bool,
}

impl UniquesSum {
    /// Replaces the sum by that of `sets`.
    pub(super) fn set<'a>(&mut self, sets: impl Iterator<Item = &'a Uniques> + Clone) {
        let lens = sets.clone().map(|set| match set {
            Uniques::Sparse(hashes) => hashes.len(),
            Uniques::Dense(_) => usize::MAX,
        });
        let most = lens.fold(0, usize::saturating_add);
        self.is_dense = false;
        if most > SPARSE_MAX {
            self.raise(sets.clone());
            // Each register that is set is at least one player.
            self.is_dense =
                most == usize::MAX || count_of(&self.registers, 0) < REGISTERS - SPARSE_MAX;
        }
        if !self.is_dense {
            self.unite(sets);
            self.is_dense = self.hashes.len() > SPARSE_MAX;
        }
    }

    /// Sets the hashes; if there are too many, some are missing.
    fn unite<'a>(&mut self, sets: impl Iterator<Item = &'a Uniques>) {
        self.hashes.clear();
        for set in sets {
            if let Uniques::Sparse(hashes) = set {
                unite(&self.hashes, hashes, &mut self.spare, SPARSE_MAX);
                core::mem::swap(&mut self.hashes, &mut self.spare);
            }
        }
    }

    /// Sets the registers.
    fn raise<'a>(&mut self, sets: impl Iterator<Item = &'a Uniques>) {
        self.registers.clear();
        self.registers.resize(REGISTERS, 0);
        for set in sets {
            match set {
                Uniques::Sparse(hashes) => raise_all(&mut self.registers, hashes),
                Uniques::Dense(registers) => {
                    for (ours, theirs) in self.registers.iter_mut().zip(registers) {
                        *ours = (*ours).max(*theirs);
                    }
                }
            }
        }
    }

    /// Returns the estimated number, a whole one.
    pub(super) fn estimate(&self) -> f64 {
        if self.is_dense {
            estimate(&self.registers)
        } else {
            float_of_u64(u64::try_from(self.hashes.len()).unwrap_or(0))
        }
    }
}

fn raise(registers: &mut [u8], hash: u32) {
    raise_all(registers, &[hash]);
}

fn raise_all(registers: &mut [u8], hashes: &[u32]) {
    // Of fixed length, so that no index is checked.
    let Some(registers) = registers.first_chunk_mut::<REGISTERS>() else {
        return;
    };
    for hash in hashes {
        let index = usize::try_from(hash >> REST_BITS).unwrap_or(0);
        // A bit behind the rest ends the run.
        let rest = (hash << INDEX_BITS) | (1 << (INDEX_BITS - 1));
        let run = u8::try_from(rest.leading_zeros()).unwrap_or(u8::MAX);
        if let Some(register) = registers.get_mut(index) {
            *register = (*register).max(run.saturating_add(1));
        }
    }
}

/// Returns how many registers have this value.
fn count_of(registers: &[u8], value: u8) -> usize {
    // Short parts, so that each sum fits into a byte: sixteen are added at once.
    let count = |part: &[u8]| {
        let equal = part.iter().map(|it| u8::from(*it == value));
        usize::from(equal.fold(0, u8::wrapping_add))
    };
    registers
        .chunks(128)
        .map(count)
        .fold(0, usize::saturating_add)
}

/// The finalizer of `SplitMix64` (Steele et al. 2014), its upper half.
fn hash(player: ClientId) -> u32 {
    let mut bits = player.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    u32::try_from(bits >> 32).unwrap_or(0)
}

fn estimate(registers: &[u8]) -> f64 {
    let largest = registers.iter().copied().max().unwrap_or(0);
    let mut counts = [0_u32; REST_BITS as usize + 2];
    for (count, value) in counts.iter_mut().zip(0..=largest) {
        *count = u32::try_from(count_of(registers, value)).unwrap_or(u32::MAX);
    }
    let size = f64::from(1_u32 << INDEX_BITS);
    let mut counts = counts.into_iter().rev().map(f64::from);
    let full = counts.next().unwrap_or(0.0);
    let mut sum = size * tau(1.0 - full / size);
    let mut empty = 0.0;
    // From the largest value down to 1; the last count is that of empty registers.
    let mut counts = counts.peekable();
    while let Some(count) = counts.next() {
        if counts.peek().is_none() {
            empty = count;
        } else {
            sum = f64::midpoint(sum, count);
        }
    }
    sum += size * sigma(empty / size);
    (core::f64::consts::LOG2_E / 2.0 * size * size / sum).round()
}

/// The sum of `x^(2^k) * 2^(k-1)` from k = 1, and x.
fn sigma(mut x: f64) -> f64 {
    let (mut sum, mut weight) = (x, 1.0);
    // x is at most 4,095 / 4,096 if there is a player, so the terms vanish.
    for _ in 0..64 {
        x *= x;
        let next = sum + x * weight;
        if next.to_bits() == sum.to_bits() {
            break;
        }
        sum = next;
        weight *= 2.0;
    }
    sum
}

/// A third of `1 - x` less the sum of `(1 - x^(2^-k))^2 * 2^-k` from k = 1.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut sum, mut weight) = (1.0 - x, 1.0);
    for _ in 0..64 {
        x = x.sqrt();
        weight /= 2.0;
        let next = sum - (1.0 - x) * (1.0 - x) * weight;
        if next.to_bits() == sum.to_bits() {
            break;
        }
        sum = next;
    }
    sum / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(players: impl Iterator<Item = u64>) -> Uniques {
        let mut uniques = Uniques::default();
        for player in players {
            assert!(uniques.add(ClientId(player), &mut { usize::MAX }));
        }
        uniques
    }

    #[test]
    fn few_players_are_counted_exactly() {
        let uniques = counted((0..512).chain(0..512));
        assert!(matches!(uniques, Uniques::Sparse(_)));
        assert_eq!(uniques.estimate().to_string(), "512");
        assert_eq!(Uniques::default().estimate().to_string(), "0");
    }

    /// 64 disjoint sets of each size: the root mean square of the relative errors is the standard
    /// error within the spread of 64 samples, and no set is wrong by 5 standard errors.
    #[test]
    fn the_standard_error_is_1_6_percent() {
        for size in [513_u64, 2_000, 10_000, 50_000, 200_000] {
            let exact = float_of_u64(size);
            let (mut squares, mut worst, mut sum) = (0.0, 0.0_f64, 0.0);
            for set in 0..64 {
                let from = set * 1_000_000_007;
                let error = counted(from..from + size).estimate() / exact - 1.0;
                squares += error * error;
                worst = worst.max(error.abs());
                sum += error;
            }
            let deviation = (squares / 64.0).sqrt();
            eprintln!(
                "{size} players: deviation {deviation:.4}, bias {:.4}",
                sum / 64.0
            );
            assert!(deviation < 0.016 * 1.35, "{size}: {deviation}");
            assert!(worst < 0.08, "{size}: {worst}");
            assert!(
                (sum / 64.0).abs() < 0.008,
                "{size}: biased by {}",
                sum / 64.0
            );
        }
    }

    #[test]
    fn a_million_players_are_counted_within_5_percent() {
        let uniques = counted(0..1_000_000);
        let error = uniques.estimate() / 1e6 - 1.0;
        assert!(error.abs() < 0.05, "{error}");
        assert_eq!(uniques.memory_bytes(), REGISTERS);
    }

    #[test]
    fn without_room_nothing_grows() {
        let mut uniques = counted(0..512);
        assert!(!uniques.add(ClientId(512), &mut 2_047));
        assert!(uniques.add(ClientId(511), &mut 0));
        assert!(uniques.add(ClientId(512), &mut 2_048));
        assert!(uniques.add(ClientId(513), &mut 0));
    }

    proptest! {
        #[test]
        fn neither_order_nor_merging_matters(sizes in prop::array::uniform3(0..900_u64)) {
            let [left, both, right] = sizes;
            let whole = counted(0..left + both + right);
            let mut merged = counted((left..left + both + right).rev());
            merged.merge(&counted(0..left + both));
            prop_assert_eq!(&merged, &whole);
            prop_assert_eq!(&Uniques::of((0..left + both + right).map(ClientId)), &whole);
            let parts = [counted(left..left + both + right), counted(0..left + both)];
            let mut sum = UniquesSum::default();
            for parts in [&parts[..], &parts[..1], &parts[..]] {
                sum.set(parts.iter());
            }
            prop_assert_eq!(sum.estimate().to_bits(), whole.estimate().to_bits());
            let mut bytes = Vec::new();
            whole.encode(&mut Writer::new(&mut bytes));
            prop_assert_eq!(Uniques::decode(&mut Reader::new(&bytes)), Ok(whole));
        }
    }
}
