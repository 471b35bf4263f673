use super::*;

const TOO_OFTEN: Outcome = Outcome::Refused(Refusal::TooOften);

#[test]
fn mesh_a1_a_constant_signer_is_processed_no_more_often_than_others() {
    let mut origin = Origin::new(1);
    let first = origin.publish(None, &NEIGHBOURS);
    let (mut table, provider) = (table(TableConfig::default()), provider());
    assert_eq!(accept(&mut table, Instant::ZERO, &first), TAKEN);
    let version = origin.publisher.version();
    let mut taken = 0;
    for number in 1..=1_000 {
        let now = Instant::from_millis(number * 10);
        let next = record(&mut origin, &first.node, (version + number, 0), 30);
        let outcome = table.accept_links(now, &provider, PEER, &next);
        assert!(matches!(outcome, Outcome::Accepted | TOO_OFTEN));
        taken += u64::from(outcome == Outcome::Accepted);
    }
    // A burst of 10, of which one was used before, and 5 per second.
    assert_eq!(taken, 9 + 50);
    assert_eq!(table.stats().too_often, 1_000 - taken);
    assert_eq!(table.stats().over_budget, 0, "nor was any checked");
    let now = Instant::from_millis(20_000);
    let nodes = (0..100).map(|_| {
        let node = origin.publish(Some(1_000_000), &NEIGHBOURS).node;
        table.accept_node(now, &provider, PEER, &node)
    });
    let taken = nodes.filter(|outcome| *outcome == Outcome::Accepted);
    assert_eq!(taken.count(), 5, "at once");
}

#[test]
fn mesh_a1_forgeries_in_an_origins_name_do_not_silence_it() {
    let mut origin = Origin::new(1);
    let first = origin.publish(None, &NEIGHBOURS);
    let mut table = table(TableConfig {
        verify_burst: u32::MAX,
        ..TableConfig::default()
    });
    let (now, provider) = (Instant::ZERO, provider());
    assert_eq!(accept(&mut table, now, &first), TAKEN);
    let version = origin.publisher.version() + 9;
    let next = record(&mut origin, &first.node, (version, 0), 30);
    let mut forged = next.clone();
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..50 {
        let outcome = table.accept_links(now, &provider, PEER, &forged);
        assert_eq!(outcome, Outcome::Refused(Refusal::Forged));
    }
    let outcome = table.accept_links(now, &provider, PEER, &next);
    assert_eq!(outcome, Outcome::Accepted);
}

/// Its links flap every 100 ms, and every half second it measures another node.
#[test]
fn an_origin_with_constant_updates_is_not_starved() {
    let mut origin = Origin::new(1);
    let (mut table, provider) = (table(TableConfig::default()), provider());
    let mut signed = 0;
    for tick in 0..300_u64 {
        let now = Instant::from_millis(tick * 100);
        let up = LinkReport {
            delay: Cost::from_millis(20),
            loss: LossCode(0),
        };
        let flips = if tick % 2 == 0 { up } else { LinkReport::DOWN };
        let other = NEIGHBOURS[usize::from(tick % 10 < 5)];
        let links = [(PEER, flips), (other, up)].into();
        let publication = origin
            .publisher
            .update(now, None, &mut origin.provider, &links);
        let publication = publication.unwrap();
        if let Some(node) = publication.node {
            let outcome = table.accept_node(now, &provider, PEER, &node);
            assert_eq!(outcome, Outcome::Accepted);
        }
        if let Some(links) = publication.links {
            signed += 1;
            let outcome = table.accept_links(now, &provider, PEER, &links);
            assert_eq!(outcome, Outcome::Accepted);
        }
    }
    assert!(signed > 100, "{signed}");
}
