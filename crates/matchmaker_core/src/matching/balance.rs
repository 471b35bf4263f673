//! Splits the parties of a match into teams of equal strength.

/// A party: its players, and the sum of their ratings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) players: u8,
    pub(super) sum: i64,
}

/// Parties of two teams for which every split is tried: 2,048 splits.
const EXHAUSTIVE_MAX: usize = 12;

/// Rounds of the local search.
const ROUNDS_MAX: usize = 8;

/// Improves the split `teams`, the team of each party, without changing the size of a team. Returns the
/// difference between the largest and the smallest mean rating of teams.
pub(super) fn balance(parties: &[Weight], teams: &mut [u8], count: u8) -> u32 {
    if count == 2 && parties.len() <= EXHAUSTIVE_MAX {
        try_all(parties, teams);
    } else if count > 1 {
        exchange(parties, teams, count);
    }
    gap(parties, teams, count)
}

/// Tries all splits into two teams of the present sizes.
fn try_all(parties: &[Weight], teams: &mut [u8]) {
    let (size, _) = totals(parties, teams, 0);
    let (all, sum) = parties.iter().fold((0_i64, 0_i64), |(size, sum), party| {
        (
            size.saturating_add(party.players.into()),
            sum.saturating_add(party.sum),
        )
    });
    let (size, other) = (size, all.saturating_sub(size));
    if size == 0 || other == 0 {
        return;
    }
    // In equal teams, the first party may stay in the first.
    let bits = parties.len().saturating_sub(usize::from(size == other));
    let mut best: Option<(u64, u32)> = None;
    let (mut mask, mut members, mut weight) = (0_u32, 0_i64, 0_i64);
    let step = u32::from(size == other);
    if let (1, Some(first)) = (step, parties.first()) {
        (mask, members, weight) = (1, first.players.into(), first.sum);
    }
    for code in 1..=1_u32
        .checked_shl(u32::try_from(bits).unwrap_or(31))
        .unwrap_or(1)
    {
        if members == size {
            // Means differ by a/size - b/other; compare a * other - b * size.
            let rest = sum.saturating_sub(weight);
            let gap = weight
                .saturating_mul(other)
                .abs_diff(rest.saturating_mul(size));
            if best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, mask));
            }
        }
        // A Gray code: each split differs from the last by one party.
        let bit = code.trailing_zeros().saturating_add(step);
        if let Some(party) = parties.get(bit as usize) {
            let flag = 1_u32.checked_shl(bit).unwrap_or_default();
            mask ^= flag;
            let players = i64::from(party.players);
            if mask & flag == 0 {
                members = members.saturating_sub(players);
                weight = weight.saturating_sub(party.sum);
            } else {
                members = members.saturating_add(players);
                weight = weight.saturating_add(party.sum);
            }
        }
    }
    if let Some((_, mask)) = best {
        for (index, team) in (0_u32..).zip(teams) {
            *team = u8::from(mask.checked_shr(index).unwrap_or_default() & 1 == 0);
        }
    }
}

/// Exchanges parties of the same size between teams while that makes the means more equal.
fn exchange(parties: &[Weight], teams: &mut [u8], count: u8) {
    let mut sums: Vec<_> = (0..count)
        .map(|team| totals(parties, teams, team))
        .collect();
    for _round in 0..ROUNDS_MAX {
        let mut has_changed = false;
        for first in 0..parties.len() {
            for second in first.saturating_add(1)..parties.len() {
                has_changed |= try_exchange(parties, teams, &mut sums, (first, second));
            }
        }
        if !has_changed {
            return;
        }
    }
}

fn try_exchange(
    parties: &[Weight],
    teams: &mut [u8],
    sums: &mut [(i64, i64)],
    (first, second): (usize, usize),
) -> bool {
    let (Some(one), Some(two)) = (parties.get(first), parties.get(second)) else {
        return false;
    };
    let (Some(&team), Some(&other)) = (teams.get(first), teams.get(second)) else {
        return false;
    };
    if team == other || one.players != two.players || one.sum == two.sum {
        return false;
    }
    let (Some(&(size, sum)), Some(&(other_size, other_sum))) =
        (sums.get(usize::from(team)), sums.get(usize::from(other)))
    else {
        return false;
    };
    let moved = two.sum.saturating_sub(one.sum);
    let distance = |sum: i64, other_sum: i64| {
        let one = sum.saturating_mul(other_size);
        one.abs_diff(other_sum.saturating_mul(size))
    };
    let changed = (sum.saturating_add(moved), other_sum.saturating_sub(moved));
    if distance(changed.0, changed.1) >= distance(sum, other_sum) {
        return false;
    }
    for (team, sum) in [(team, changed.0), (other, changed.1)] {
        if let Some(total) = sums.get_mut(usize::from(team)) {
            total.1 = sum;
        }
    }
    teams.swap(first, second);
    true
}

/// Returns the players of a team, and the sum of their ratings.
fn totals(parties: &[Weight], teams: &[u8], team: u8) -> (i64, i64) {
    let members = parties.iter().zip(teams).filter(|(_, of)| **of == team);
    members.fold((0, 0), |(players, sum): (i64, i64), (party, _)| {
        (
            players.saturating_add(party.players.into()),
            sum.saturating_add(party.sum),
        )
    })
}

fn gap(parties: &[Weight], teams: &[u8], count: u8) -> u32 {
    let means = (0..count).filter_map(|team| {
        let (players, sum) = totals(parties, teams, team);
        sum.checked_div(players)
    });
    let (low, high) = means.fold((i64::MAX, i64::MIN), |(low, high), mean| {
        (low.min(mean), high.max(mean))
    });
    u32::try_from(high.saturating_sub(low).max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(parties: &[Weight], teams: &[u8], count: u8) -> Vec<i64> {
        (0..count)
            .map(|team| totals(parties, teams, team).0)
            .collect()
    }

    /// The least gap of all splits, by trying each.
    fn least_gap(parties: &[Weight], teams: &[u8]) -> u32 {
        let wanted = sizes(parties, teams, 2);
        let splits = (0_u32..1 << parties.len()).map(|mask| {
            (0..parties.len())
                .map(|at| u8::from(mask >> at & 1 == 1))
                .collect::<Vec<_>>()
        });
        splits
            .filter(|split| sizes(parties, split, 2) == wanted)
            .map(|split| gap(parties, &split, 2))
            .min()
            .unwrap()
    }

    #[test]
    fn parties_are_exchanged_until_teams_are_equal() {
        let solo = |sum| Weight { players: 1, sum };
        let parties = [solo(10), solo(10), solo(20), solo(20), solo(30), solo(30)];
        let mut teams = [0, 0, 1, 1, 2, 2];
        assert_eq!(gap(&parties, &teams, 3), 20);
        assert_eq!(balance(&parties, &mut teams, 3), 0);
        assert_eq!(sizes(&parties, &teams, 3), [2, 2, 2]);
    }

    #[test]
    fn a_team_of_one_is_never_emptied() {
        let parties = [
            Weight {
                players: 4,
                sum: 4_000,
            },
            Weight {
                players: 1,
                sum: 9_000,
            },
        ];
        let mut teams = [0, 1];
        assert_eq!(balance(&parties, &mut teams, 2), 8_000);
        assert_eq!(sizes(&parties, &teams, 2), [4, 1]);
    }

    proptest! {
        #[test]
        fn two_teams_get_the_best_split(
            parties in proptest::collection::vec((1_u8..4, 0_i64..3_000), 2..9),
            mask in any::<u8>(),
        ) {
            let parties: Vec<_> = parties
                .into_iter()
                .map(|(players, rating)| Weight { players, sum: i64::from(players) * rating })
                .collect();
            let mut teams: Vec<_> = (0..parties.len()).map(|at| mask >> (at % 8) & 1).collect();
            let before = sizes(&parties, &teams, 2);
            let least = least_gap(&parties, &teams);
            let found = balance(&parties, &mut teams, 2);
            prop_assert_eq!(found, gap(&parties, &teams, 2));
            prop_assert_eq!(before, sizes(&parties, &teams, 2), "sizes stay");
            // Means are rounded, so the best by fractions may be 1 off.
            prop_assert!(found <= least + 1, "{} of {}", found, least);
        }
    }
}
