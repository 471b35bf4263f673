use super::*;

fn steps(hashes: &ReportedHashes, cursor: &mut HashCursor) -> Vec<u32> {
    let steps = cursor.take(hashes);
    let expected: Vec<_> = steps.clone().map(|step| step * 3).collect();
    assert_eq!(
        steps
            .clone()
            .filter_map(|step| hashes.get(step))
            .collect::<Vec<_>>(),
        expected
    );
    steps.collect()
}

#[test]
fn each_peer_gets_each_once_and_again_on_request() {
    let mut hashes = ReportedHashes::new();
    for step in (0..20).chain(30..33) {
        hashes.push(step, step * 3).unwrap();
    }
    let (mut one, mut other) = (HashCursor::default(), HashCursor::default());
    assert_eq!(steps(&hashes, &mut one), (0..16).collect::<Vec<_>>());
    assert_eq!(steps(&hashes, &mut one), [16, 17, 18, 19]);
    assert_eq!(
        steps(&hashes, &mut one),
        [30, 31, 32],
        "what was left out is not sent"
    );
    assert_eq!(steps(&hashes, &mut one), []);
    one.on_wanted(&hashes, 31);
    assert_eq!(steps(&hashes, &mut one), [31, 32]);
    one.on_wanted(&hashes, 33);
    assert_eq!(steps(&hashes, &mut one), [], "it was never sent");
    assert_eq!(steps(&hashes, &mut other), (0..16).collect::<Vec<_>>());
    assert_eq!(hashes.push(32, 0), Err(ReportError::OutOfOrder));
    // A burst longer than the ring: lost hashes are neither sent nor confused with others.
    for step in 33..3_000 {
        hashes.push(step, step * 3).unwrap();
    }
    let first = 3_000 - 1_024;
    assert_eq!(
        steps(&hashes, &mut one),
        (first..first + 16).collect::<Vec<_>>()
    );
    one.on_wanted(&hashes, 31);
    assert_eq!(steps(&hashes, &mut one).first(), Some(&(first + 16)));
}
