//! Ranks of players by score.

use core::cmp::Reverse;
use core::fmt;
use std::collections::BTreeMap;

use wire::ClientId;

/// Players ordered by score, the highest first, with their ranks.
///
/// Of two players with equal scores, the first to reach the score has the better rank. To
/// restore a saved leaderboard with the same ranks, [`set`](Self::set) its entries in the order of
/// [`page`](Self::page).
///
/// Entries are in sorted blocks of at most 512. A rank is a sum over the lengths of the blocks
/// before it, and a change moves entries of one block: some microseconds with a million players.
/// An entry takes about 100 bytes.
///
/// ```
/// use hub::game::leaderboard::Leaderboard;
/// use wire::ClientId;
///
/// let mut board = Leaderboard::new(1_000_000);
/// for (player, score) in [(1, 300), (2, 900), (3, 300), (4, 500)] {
///     board.set(ClientId(player), score)?;
/// }
/// assert_eq!(board.rank(ClientId(4)), Some(2));
/// let players: Vec<u64> = board.top(3).map(|it| it.player.0).collect();
/// assert_eq!(players, [2, 4, 1]);
/// let players: Vec<u64> = board.around(ClientId(1), 1).map(|it| it.player.0).collect();
/// assert_eq!(players, [4, 1, 3]);
/// # Ok::<(), hub::game::leaderboard::LeaderboardFull>(())
/// ```
pub struct Leaderboard {
    players_max: usize,
    /// The key of each player's entry.
    keys: BTreeMap<ClientId, Key>,
    /// All keys, ascending. No block is empty.
    blocks: Vec<Vec<Key>>,
    /// Lengths of `blocks`, side by side for fast sums.
    lens: Vec<usize>,
    last_change: u64,
}

/// A player's rank and score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The rank; 1 is the best.
    pub rank: usize,
    /// The player.
    pub player: ClientId,
    /// The score.
    pub score: i64,
}

/// The leaderboard has as many players as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderboardFull;

impl fmt::Display for LeaderboardFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the leaderboard has no room for another player")
    }
}

impl core::error::Error for LeaderboardFull {}

/// Orders entries: highest score, then earliest change. The number of a change is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    score: Reverse<i64>,
    change: u64,
    player: ClientId,
}

/// Largest block. A full one is split in half.
const BLOCK_MAX: usize = 512;

/// Blocks that together have at most this many entries are merged.
const MERGE_MAX: usize = BLOCK_MAX / 2;

impl Leaderboard {
    /// Creates an empty leaderboard for at most `players_max` players.
    #[must_use]
    pub const fn new(players_max: usize) -> Self {
        Self {
            players_max,
            keys: BTreeMap::new(),
            blocks: Vec::new(),
            lens: Vec::new(),
            last_change: 0,
        }
    }

    /// Sets the score of `player`. If it is the score that the player has, nothing changes.
    ///
    /// # Errors
    ///
    /// [`LeaderboardFull`] if the player has no score yet and there is no room.
    pub fn set(&mut self, player: ClientId, score: i64) -> Result<(), LeaderboardFull> {
        match self.keys.get(&player) {
            Some(key) if key.score.0 == score => return Ok(()),
            Some(_) => {
                self.remove(player);
            }
            None if self.keys.len() >= self.players_max => return Err(LeaderboardFull),
            None => {}
        }
        self.last_change = self.last_change.saturating_add(1);
        let key = Key {
            score: Reverse(score),
            change: self.last_change,
            player,
        };
        self.keys.insert(player, key);
        self.insert(key);
        Ok(())
    }

    /// Removes `player`; returns the score that it had.
    pub fn remove(&mut self, player: ClientId) -> Option<i64> {
        let key = self.keys.remove(&player)?;
        let (index, place) = self.find(&key);
        if let Some(block) = self.blocks.get_mut(index)
            && place < block.len()
        {
            block.remove(place);
            self.update_len(index);
            self.merge(index);
        }
        Some(key.score.0)
    }

    /// Returns the score of `player`.
    #[must_use]
    pub fn score(&self, player: ClientId) -> Option<i64> {
        self.keys.get(&player).map(|key| key.score.0)
    }

    /// Returns the rank of `player`; 1 is the best.
    #[must_use]
    pub fn rank(&self, player: ClientId) -> Option<usize> {
        let key = self.keys.get(&player)?;
        let (index, place) = self.find(key);
        let before: usize = self.lens.iter().take(index).sum();
        Some(before.saturating_add(place).saturating_add(1))
    }

    /// Returns the best `n` players.
    pub fn top(&self, n: usize) -> impl Iterator<Item = Ranked> {
        self.page(1, n)
    }

    /// Returns `player`, and up to `n` players before and after it. It is empty if the player has
    /// no score.
    pub fn around(&self, player: ClientId, n: usize) -> impl Iterator<Item = Ranked> {
        let (first, len) = self.rank(player).map_or((1, 0), |rank| {
            let before = n.min(rank.saturating_sub(1));
            let len = before.saturating_add(n).saturating_add(1);
            (rank.saturating_sub(before), len)
        });
        self.page(first, len)
    }

    /// Returns up to `n` players from the rank `first` on; 1 is the best.
    pub fn page(&self, first: usize, n: usize) -> impl Iterator<Item = Ranked> {
        let mut skip = first.saturating_sub(1);
        let full = self.lens.iter().take_while(|len| {
            let is_before = skip >= **len;
            if is_before {
                skip = skip.saturating_sub(**len);
            }
            is_before
        });
        let index = full.count();
        let keys = self.blocks.iter().skip(index).flatten().skip(skip).take(n);
        keys.zip(first.max(1)..).map(|(key, rank)| Ranked {
            rank,
            player: key.player,
            score: key.score.0,
        })
    }

    /// Returns the number of players.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether no player has a score.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn insert(&mut self, key: Key) {
        let (index, place) = self.find(&key);
        let Some(block) = self.blocks.get_mut(index) else {
            self.blocks.push(vec![key]);
            self.lens.push(1);
            return;
        };
        block.insert(place, key);
        if block.len() > BLOCK_MAX {
            let upper = block.split_off(BLOCK_MAX / 2);
            self.lens.insert(index.saturating_add(1), upper.len());
            self.blocks.insert(index.saturating_add(1), upper);
        }
        self.update_len(index);
    }

    /// Returns the block that has `key`, or would have it, and the place in it.
    fn find(&self, key: &Key) -> (usize, usize) {
        let starts_by = |block: &Vec<Key>| block.first().is_some_and(|first| first <= key);
        let index = self.blocks.partition_point(starts_by).saturating_sub(1);
        let block = self.blocks.get(index).map_or(&[][..], Vec::as_slice);
        (index, block.partition_point(|it| it < key))
    }

    fn update_len(&mut self, index: usize) {
        if let (Some(len), Some(block)) = (self.lens.get_mut(index), self.blocks.get(index)) {
            *len = block.len();
        }
    }

    /// Merges the block at `index` with the next or the previous one if both are short.
    fn merge(&mut self, index: usize) {
        for first in [index, index.saturating_sub(1)] {
            let next = first.saturating_add(1);
            let pair = (self.lens.get(first), self.lens.get(next));
            if let (Some(one), Some(other)) = pair
                && one.saturating_add(*other) <= MERGE_MAX
            {
                self.lens.remove(next);
                let upper = self.blocks.remove(next);
                if let Some(block) = self.blocks.get_mut(first) {
                    block.extend(upper);
                }
                self.update_len(first);
                return;
            }
        }
        if self.lens.get(index) == Some(&0) {
            self.lens.remove(index);
            self.blocks.remove(index);
        }
    }
}

impl fmt::Debug for Leaderboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaderboard")
            .field("players", &self.keys.len())
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Players with scores, sorted, each with the number of its last change.
    #[derive(Default)]
    struct Model(Vec<(Reverse<i64>, u64, u64)>);

    impl Model {
        fn set(&mut self, player: u64, score: i64, change: u64) {
            if self.0.iter().any(|it| it.2 == player && it.0.0 == score) {
                return;
            }
            self.0.retain(|it| it.2 != player);
            self.0.push((Reverse(score), change, player));
            self.0.sort_unstable();
        }
    }

    fn check(board: &Leaderboard, model: &Model) {
        let all: Vec<_> = board.page(1, usize::MAX).collect();
        let expected: Vec<_> = (1..)
            .zip(&model.0)
            .map(|(rank, &(Reverse(score), _, player))| Ranked {
                rank,
                player: ClientId(player),
                score,
            })
            .collect();
        assert_eq!(all, expected);
        assert_eq!(board.len(), expected.len());
        for it in &expected {
            assert_eq!(board.rank(it.player), Some(it.rank));
            assert_eq!(board.score(it.player), Some(it.score));
            let around: Vec<_> = board.around(it.player, 2).collect();
            let first = it.rank.saturating_sub(3);
            let end = (it.rank + 2).min(expected.len());
            assert_eq!(around, expected[first..end]);
        }
        let lens: Vec<_> = board.blocks.iter().map(Vec::len).collect();
        assert_eq!(board.lens, lens);
        let is_fit = |len: &usize| (1..=BLOCK_MAX).contains(len);
        assert!(lens.iter().all(is_fit), "{lens:?}");
        let pairs = lens.windows(2).filter(|it| it[0] + it[1] <= MERGE_MAX);
        assert!(pairs.count() * 2 <= lens.len() + 1, "{lens:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn h16_ranks_agree_with_a_sorted_list(
            steps in prop::collection::vec((0_u64..40, prop::option::of(-5_i64..5)), 1..200),
        ) {
            let (mut board, mut model) = (Leaderboard::new(100), Model::default());
            for (change, (player, score)) in (1..).zip(steps) {
                if let Some(score) = score {
                    board.set(ClientId(player), score).unwrap();
                    model.set(player, score, change);
                } else {
                    let had = model.0.iter().find(|it| it.2 == player).map(|it| it.0.0);
                    prop_assert_eq!(board.remove(ClientId(player)), had);
                    model.0.retain(|it| it.2 != player);
                }
                check(&board, &model);
            }
        }
    }

    #[test]
    fn h16_ranks_agree_while_blocks_split_and_merge() {
        let mut generator = wire::Seed::from_number(16).generator(0);
        let (mut board, mut model) = (Leaderboard::new(4_000), Model::default());
        let mut change = 0;
        for (players, removals) in [(4_000, 100), (4_000, 900)] {
            for turn in 0..8_000 {
                let player = generator.below(players);
                if generator.below(1_000) < removals {
                    board.remove(ClientId(player));
                    model.0.retain(|it| it.2 != player);
                } else {
                    let score = i64::try_from(generator.below(500)).unwrap();
                    change += 1;
                    board.set(ClientId(player), score).unwrap();
                    model.set(player, score, change);
                }
                if turn % 1_000 == 999 {
                    check(&board, &model);
                }
            }
        }
        for player in 0..4_000 {
            board.remove(ClientId(player));
        }
        assert!(board.is_empty() && board.blocks.is_empty());
    }

    #[test]
    fn h16_a_leaderboard_holds_a_million_players_and_no_more() {
        const PLAYERS: u64 = 1_000_000;
        let mut board = Leaderboard::new(1_000_000);
        // An odd factor gives each player another score.
        let score = |player: u64| i64::from(u32::try_from(player * 7 % PLAYERS).unwrap());
        for player in 0..PLAYERS {
            board.set(ClientId(player), score(player)).unwrap();
        }
        assert_eq!(board.set(ClientId(PLAYERS), 1), Err(LeaderboardFull));
        assert_eq!(board.set(ClientId(1), 7), Ok(()));
        for player in (0..PLAYERS).step_by(997) {
            let rank = usize::try_from(PLAYERS - player * 7 % PLAYERS).unwrap();
            assert_eq!(board.rank(ClientId(player)), Some(rank));
            assert_eq!(board.page(rank, 1).next().unwrap().player, ClientId(player));
        }
        assert!(board.blocks.len() <= 2 * 1_000_000 / MERGE_MAX);
        assert_eq!(board.page(1_000_001, 5).count(), 0);
        assert_eq!(board.around(ClientId(PLAYERS), 5).count(), 0);
    }
}
