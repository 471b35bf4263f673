//! Arithmetic on rows of 16-bit lanes, in loops that the compiler vectorizes.
//!
//! A lane is never negative, and [`Cost::UNROUTABLE`](crate::cost::Cost::UNROUTABLE) is the largest
//! value, so every sum saturates there. Baseline x86-64 has the saturating sum, the signed minimum
//! and the comparison of eight lanes each.

/// A row of the matrix, and the cost to its first node.
pub(super) type Way<'a> = (&'a [i16], i16);

/// `next` = min(`next`, row + cost), lane by lane, over all `ways`. Returns the number of rows.
///
/// Processes four rows at a time, so that `next` is loaded and stored once for four.
pub(super) fn add_rows<'a>(next: &mut [i16], ways: impl Iterator<Item = Way<'a>>) -> usize {
    let mut held: [Way<'a>; 4] = [(&[], 0); 4];
    let (mut count, mut rows) = (0_usize, 0_usize);
    for way in ways {
        if let Some(place) = held.get_mut(count) {
            *place = way;
        }
        count = count.saturating_add(1);
        rows = rows.saturating_add(1);
        if count == held.len() {
            add_four(next, held);
            count = 0;
        }
    }
    for &(row, cost) in held.iter().take(count) {
        add_row(next, row, cost);
    }
    rows
}

fn add_four(next: &mut [i16], [(a, to_a), (b, to_b), (c, to_c), (d, to_d)]: [Way<'_>; 4]) {
    let rows = a.iter().zip(b).zip(c).zip(d);
    for (best, (((&a, &b), &c), &d)) in next.iter_mut().zip(rows) {
        let ab = a.saturating_add(to_a).min(b.saturating_add(to_b));
        let cd = c.saturating_add(to_c).min(d.saturating_add(to_d));
        *best = (*best).min(ab.min(cd));
    }
}

/// `next` = min(`next`, `row` + `cost`), lane by lane.
pub(super) fn add_row(next: &mut [i16], row: &[i16], cost: i16) {
    for (best, &link) in next.iter_mut().zip(row) {
        *best = (*best).min(link.saturating_add(cost));
    }
}

/// The sum of two rows.
pub(super) fn sum(a: &[i16], b: &[i16]) -> Vec<i16> {
    let lanes = a.iter().zip(b);
    lanes.map(|(&a, &b)| a.saturating_add(b)).collect()
}

/// The minimum of `start` and of the sums of both rows.
pub(super) fn least(start: i16, a: &[i16], b: &[i16]) -> i16 {
    let lanes = a.iter().zip(b);
    lanes.fold(start, |least, (&a, &b)| least.min(a.saturating_add(b)))
}

/// The first index at which the sum of both rows is `wanted`.
pub(super) fn find_sum(a: &[i16], b: &[i16], wanted: i16) -> Option<usize> {
    let mut start = 0_usize;
    for (a, b) in a.chunks(CHUNK).zip(b.chunks(CHUNK)) {
        let lanes = || a.iter().zip(b);
        // Without an early exit, the loop is vectorized.
        let hits = lanes().fold(0, |hits: i16, (&a, &b)| {
            hits | i16::from(a.saturating_add(b) == wanted).wrapping_neg()
        });
        if hits != 0 {
            let place = lanes().position(|(&a, &b)| a.saturating_add(b) == wanted);
            return place.map(|place| start.saturating_add(place));
        }
        start = start.saturating_add(CHUNK);
    }
    None
}

/// Marks the lanes in which `row` + `cost` equals `reached`.
pub(super) fn mark(marks: &mut [i16], reached: &[i16], row: &[i16], cost: i16) {
    let lanes = reached.iter().zip(row);
    for (mark, (&reached, &link)) in marks.iter_mut().zip(lanes) {
        *mark |= i16::from(link.saturating_add(cost) == reached).wrapping_neg();
    }
}

/// Lanes compared between two checks for a hit.
const CHUNK: usize = 128;
