use super::super::*;
use crate::bundle::Shape;
use crate::input::Width;
use crate::message::QUIET;

const MATCH: MatchId = MatchId([7; 16]);
const OTHER: Head = [0x77; 16];
const FAR: Tick = Tick(u32::MAX);

/// Heads and salts of a peer whose inputs begin with tick 3, its unchanging inputs, and the
/// heads before ticks 3, 4 and so on; all salts are threes.
fn quiet(ticks: usize) -> (PeerCommitments, Chain, Vec<Head>) {
    let mut committed = PeerCommitments::new(MATCH, Seat(1), 4);
    committed.begin(Tick(3));
    let mut chain = Chain::new(Shape {
        seats: 1,
        width: Width::bits::<16>(),
    });
    let mut heads = vec![first_head(MATCH, Seat(1))];
    for tick in (3..).take(ticks) {
        chain.put(Tick(tick), &[QUIET]);
        committed.on_salt(Tick(tick), [3; 8]);
        heads.push(next_head(heads.last().unwrap(), [3; 8], &[QUIET]));
    }
    (committed, chain, heads)
}

#[test]
fn inputs_are_proved_by_the_next_head() {
    let (mut committed, chain, heads) = quiet(6);
    assert!(committed.on_head(5, &heads[2], FAR));
    assert_eq!(committed.check(&chain, Tick(4)), Ok(()));
    assert_eq!(committed.checked, Tick(3), "no head is over one tick");
    assert_eq!(committed.check(&chain, Tick(9)), Ok(()));
    assert_eq!((committed.checked, committed.end), (Tick(5), Tick(5)));
    // The heads over 6 and 7 are lost.
    assert!(committed.on_head(8, &heads[5], FAR));
    assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
    assert_eq!(committed.checked, Tick(5));
    assert_eq!(committed.check(&chain, Tick(8)), Ok(()));
    assert_eq!(committed.checked, Tick(8));
    // One of them arrives late.
    assert!(committed.on_head(6, &OTHER, FAR));
    assert_eq!(committed.check(&chain, Tick(9)), Ok(()));
}

#[test]
fn the_first_head_of_a_tick_counts_and_each_head_is_binding() {
    let (mut committed, chain, heads) = quiet(6);
    committed.on_head(5, &heads[2], FAR);
    committed.on_head(5, &OTHER, FAR);
    assert_eq!(committed.check(&chain, Tick(5)), Ok(()));
    committed.on_head(7, &OTHER, FAR);
    committed.on_head(7, &heads[4], FAR);
    committed.on_head(8, &heads[5], FAR);
    // A later correct head does not repair it, nor does anything else.
    assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(5)));
    assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(5)));
    assert_eq!(committed.checked, Tick(5));
}

#[test]
fn a_head_that_covers_less_than_an_earlier_one_proves_nothing() {
    let (mut committed, chain, heads) = quiet(6);
    assert!(committed.on_head(7, &heads[4], FAR));
    assert!(committed.on_head(5, &heads[2], FAR));
    assert_eq!(committed.check(&chain, Tick(6)), Ok(()));
    assert_eq!(committed.checked, Tick(3));
    assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
    assert_eq!(committed.checked, Tick(7));
    // The same if the other head was the wrong one.
    let (mut committed, chain, heads) = quiet(6);
    assert!(committed.on_head(8, &OTHER, FAR));
    for end in 4..8 {
        assert!(committed.on_head(end, &heads[usize::from(end) - 3], FAR));
    }
    assert_eq!(committed.check(&chain, Tick(7)), Ok(()));
    assert_eq!(committed.checked, Tick(3));
    assert_eq!(committed.check(&chain, Tick(9)), Err(Tick(3)));
}

#[test]
fn a_head_beyond_our_own_commitments_is_ignored() {
    let (mut committed, _, _) = quiet(1);
    assert!(!committed.on_head(8, &OTHER, Tick(7)), "four at a time");
    assert_eq!(committed.end, Tick(3));
    assert!(committed.on_head(7, &OTHER, Tick(0)));
    assert!(committed.on_head(11, &OTHER, Tick(0)));
    assert!(
        committed.on_head(40, &OTHER, Tick(40)),
        "or what we stamped"
    );
    assert!(!committed.on_head(46, &OTHER, Tick(45)));
    assert_eq!(committed.end, Tick(40));
}

#[test]
fn heads_and_salts_outside_the_window_are_refused() {
    let (mut committed, chain, heads) = quiet(1);
    let low = |tick: u32| Tick(tick).low();
    assert!(!committed.on_head(low(3 + AHEAD_MAX), &OTHER, FAR));
    assert!(!committed.on_head(low(3 + 30_000), &OTHER, FAR));
    assert_eq!(committed.end, Tick(3));
    // They would take the slot of an awaited salt.
    committed.on_salt(Tick(3 + AHEAD_MAX), [9; 8]);
    committed.on_salt(Tick(2), [9; 8]);
    assert!(committed.on_head(low(4), &heads[1], FAR));
    assert!(committed.on_head(low(2 + AHEAD_MAX), &OTHER, FAR));
    assert_eq!(committed.check(&chain, Tick(4)), Ok(()));
    assert_eq!(committed.checked, Tick(4));
}
