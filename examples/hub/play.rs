//! The steps of the script. Each drives the nodes, and compares what they report with what must be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hub::game::leaderboard::Leaderboard;
use hub::game::timed_states::{Timed, TimedStates, TimedStatesConfig};
use hub::kv::{KvError, KvKey, KvPrefix, KvPut, Revision};
use hub::record::RevokeReason;
use hub::{ClaimId, KvAnswer, MailSeq, Name, NodeEvent, PlayerMessage};
use tickwire::servicer::Clock;
use wire::ClientId;

use crate::Outcome;
use crate::cluster::{Cluster, OPERATOR, Report};
use crate::raid::{FIGHT, GATHERING, Hit, Raid, State};

/// Players 1 to 30 are logged in, ten on each server.
pub(crate) const PLAYERS: u64 = 30;

/// A player that logs in later.
const LATE: ClientId = ClientId(100);

const HOUR: Duration = Duration::from_secs(3_600);

type Step = fn(&mut Cluster) -> Outcome<String>;

/// All steps, in order.
pub(crate) const STEPS: [(&str, Step); 8] = [
    ("login", login),
    ("offline mail", offline_mail),
    ("multicast", multicast),
    ("second login", second_login),
    ("kick", kick),
    ("hub restart", hub_restart),
    ("one boss", one_boss),
    ("raid", raid),
];

/// The server that a player logs in to.
fn server_of(player: u64) -> usize {
    usize::try_from(player % 3).unwrap_or_default()
}

fn claim(cluster: &Cluster, at: usize, player: ClientId, seen: MailSeq) -> Outcome<ClaimId> {
    let claimed = cluster.ask(at, move |now, node| {
        node.claim(now, player, seen, Bytes::new())
    })?;
    Ok(claimed.map_err(|error| error.to_string())?)
}

fn login(cluster: &mut Cluster) -> Outcome<String> {
    for player in 1..=PLAYERS {
        claim(cluster, server_of(player), ClientId(player), MailSeq(0))?;
    }
    // The operator's node watches all players.
    let mut online = BTreeSet::new();
    cluster.wait("all players are online", |at, report| {
        if let (OPERATOR, Report::Event(NodeEvent::PlayerPresence(player, Some(_)))) = (at, report)
        {
            online.insert(*player);
        }
        online.len() as u64 == PLAYERS
    })?;
    Ok(format!(
        "the operator sees {} players on three servers",
        online.len()
    ))
}

fn send_mail(cluster: &Cluster, at: usize, text: &'static str) -> Outcome<()> {
    let sent = cluster.ask(at, move |now, node| {
        node.mail(now, LATE, Bytes::from_static(text.as_bytes()), HOUR)
    })?;
    sent.map_err(|error| error.to_string())?;
    Ok(())
}

/// Logs `LATE` in at server 2, and returns its mail up to the end of its mailbox.
fn read_mail(cluster: &Cluster, seen: MailSeq, count: usize) -> Outcome<Vec<(MailSeq, String)>> {
    let session = claim(cluster, 2, LATE, seen)?;
    let mut mails = Vec::new();
    let mut is_empty = false;
    cluster.wait("the mailbox is read", |_, report| {
        match report {
            Report::Event(NodeEvent::Mail {
                claim, seq, body, ..
            }) if *claim == session => {
                mails.push((*seq, String::from_utf8_lossy(body).into_owned()));
            }
            Report::Event(NodeEvent::MailboxEmpty(claim)) if *claim == session => is_empty = true,
            _ => {}
        }
        is_empty && mails.len() >= count
    })?;
    Ok(mails)
}

fn acknowledge(cluster: &Cluster, seq: MailSeq) -> Outcome<()> {
    let session = claim(cluster, 2, LATE, seq)?;
    cluster.ask(2, move |now, node| node.acknowledge(now, session, seq))?;
    Ok(())
}

const LETTERS: [&str; 5] = ["one", "two", "three", "four", "five"];

fn offline_mail(cluster: &mut Cluster) -> Outcome<String> {
    for text in LETTERS {
        send_mail(cluster, 0, text)?;
    }
    let mut stored = 0;
    cluster.wait("the mail is on disk", |_, report| {
        stored += usize::from(matches!(report, Report::Event(NodeEvent::MailStored(_))));
        stored == LETTERS.len()
    })?;
    let mails = read_mail(cluster, MailSeq(0), LETTERS.len())?;
    let texts: Vec<_> = mails.iter().map(|(_, text)| text.as_str()).collect();
    if texts != LETTERS {
        return Err(format!("got {texts:?}").into());
    }
    let last = mails.last().map(|(seq, _)| *seq).ok_or("no mail")?;
    acknowledge(cluster, last)?;
    let again = read_mail(cluster, last, 0)?;
    if !again.is_empty() {
        return Err(format!("acknowledged mail again: {again:?}").into());
    }
    Ok("five mails to an offline player, read in order, once".to_owned())
}

fn multicast(cluster: &mut Cluster) -> Outcome<String> {
    let players: Vec<_> = (1..=PLAYERS).map(ClientId).collect();
    let sent = cluster.ask(1, move |now, node| {
        node.multicast(now, &players, Bytes::from_static(b"the gate is open"))
    })?;
    let live = sent.map_err(|error| error.to_string())?;
    let mut reached = BTreeMap::new();
    let mut outcome = None;
    cluster.wait("all players have the message", |_, report| {
        match report {
            Report::Message(claim, PlayerMessage::Forward { .. }) => {
                *reached.entry(claim.player()).or_insert(0) += 1;
            }
            Report::Event(NodeEvent::LiveSent {
                first,
                last,
                outcome: result,
            }) if (*first..=*last).contains(&live) => outcome = *result,
            _ => {}
        }
        reached.len() as u64 == PLAYERS && outcome.is_some()
    })?;
    if reached.values().any(|count| *count != 1) {
        return Err("a player got it twice".into());
    }
    Ok(format!("one message, {} players, each once", reached.len()))
}

fn second_login(cluster: &mut Cluster) -> Outcome<String> {
    let player = ClientId(3);
    let before = server_of(3);
    let after = (before + 1) % 3;
    claim(cluster, after, player, MailSeq(0))?;
    let (mut is_granted, mut is_lost) = (false, false);
    cluster.wait("the newer session wins", |at, report| {
        match report {
            Report::Event(NodeEvent::Claimed(claim)) if claim.player() == player => {
                is_granted |= at == after;
            }
            Report::Event(NodeEvent::ClaimLost(claim, RevokeReason::Taken)) => {
                is_lost |= at == before && claim.player() == player;
            }
            _ => {}
        }
        is_granted && is_lost
    })?;
    Ok("the newer session has the player, the older server knows".to_owned())
}

fn kick(cluster: &mut Cluster) -> Outcome<String> {
    let player = ClientId(7);
    let sent = cluster.ask(OPERATOR, move |now, node| {
        node.kick(now, player, Bytes::from_static(b"rule 4"))
    })?;
    sent.map_err(|error| error.to_string())?;
    let mut session = None;
    cluster.wait("the player's server is asked", |_, report| {
        if let Report::Event(NodeEvent::Kicked { claim, reason, .. }) = report
            && claim.player() == player
            && reason[..] == *b"rule 4"
        {
            session = Some(*claim);
        }
        session.is_some()
    })?;
    let session = session.ok_or("no session")?;
    if !cluster.ask(server_of(7), move |now, node| node.release(now, session))? {
        return Err("the session was over".into());
    }
    cluster.wait("the player is offline", |at, report| {
        matches!((at, report), (OPERATOR, Report::Event(NodeEvent::PlayerPresence(it, None)))
            if *it == player)
    })?;
    Ok("the operator removes a player, with a reason".to_owned())
}

fn hub_restart(cluster: &mut Cluster) -> Outcome<String> {
    cluster.stop_hub()?;
    for text in LETTERS {
        send_mail(cluster, 0, text)?;
    }
    cluster.start_hub()?;
    let (mut joined, mut stored) = (BTreeSet::new(), 0);
    cluster.wait("all nodes are back", |at, report| {
        match report {
            Report::Event(NodeEvent::Joined { .. }) => {
                joined.insert(at);
            }
            Report::Event(NodeEvent::MailStored(_)) => stored += 1,
            _ => {}
        }
        joined.len() == OPERATOR + 1 && stored == LETTERS.len()
    })?;
    // The player's session has survived at its server, which renews it.
    let mails = read_mail(cluster, MailSeq(0), LETTERS.len())?;
    let texts: Vec<_> = mails.iter().map(|(_, text)| text.as_str()).collect();
    if texts != LETTERS {
        return Err(format!("got {texts:?}").into());
    }
    Ok("no server restarts; mail sent meanwhile is stored and read in order".to_owned())
}

/// All servers try to create the same key; the operator's node watches it.
fn one_boss(cluster: &mut Cluster) -> Outcome<String> {
    let prefix = KvPrefix::new("boss.")?;
    let watch = cluster.ask(OPERATOR, move |_, node| {
        node.kv().watch(prefix, Revision::NONE)
    })??;
    cluster.wait("the watch is complete", |_, report| {
        matches!(report, Report::Event(NodeEvent::KvComplete { watch: it, .. }) if *it == watch)
    })?;
    for at in 0..OPERATOR {
        let put = KvPut::new(KvKey::new("boss.dragon")?, at.to_string());
        let put = put.expecting(Revision::NONE).with_lease();
        cluster.ask(at, move |_, node| node.kv().put(put))??;
    }
    let (mut winners, mut conflicts, mut seen) = (Vec::new(), 0, Vec::new());
    cluster.wait("one server has the boss", |at, report| {
        match report {
            Report::Event(NodeEvent::KvAnswer { result, .. }) => match result {
                Ok(KvAnswer::Written { .. }) => winners.push(at.to_string()),
                Err(KvError::Conflict { .. }) => conflicts += 1,
                _ => {}
            },
            Report::Event(NodeEvent::KvChanged { change, .. }) => {
                let value = change.value.as_ref().map(|(value, _)| value);
                seen.push(value.map_or_else(String::new, |it| String::from_utf8_lossy(it).into()));
            }
            _ => {}
        }
        winners.len() + conflicts == OPERATOR && !seen.is_empty()
    })?;
    if winners.len() != 1 || seen != winners {
        return Err(format!("{winners:?} won, the watcher saw {seen:?}").into());
    }
    Ok(format!(
        "of three servers one has it, {conflicts} got a conflict, a watcher saw one change"
    ))
}

fn raid(cluster: &mut Cluster) -> Outcome<String> {
    let clock = Clock::new();
    let begin = clock.now();
    let raiders: Vec<_> = (1..=5).map(ClientId).collect();
    let mut states = TimedStates::new(TimedStatesConfig::default(), Raid);
    for player in &raiders {
        states.insert(*player, Timed::until(State::Gathering, begin + GATHERING))?;
    }
    if states.apply(begin, ClientId(1), &Hit(1)).is_ok() {
        return Err("a hit before the fight counted".into());
    }
    let fight = begin + GATHERING;
    for (at, player) in raiders.iter().enumerate() {
        let damage = i64::try_from(at)? * 10;
        states
            .apply(fight, *player, &Hit(damage))
            .map_err(|error| error.to_string())?;
    }
    // The deadlines are those of the rules, however late the timeout is handled.
    states.handle_timeout(fight + FIGHT + HOUR);
    let mut ranking = Leaderboard::new(100);
    for (player, state) in states.iter() {
        if let State::Done(damage) = state.state {
            ranking.set(player, damage)?;
        }
    }
    let best: Vec<_> = ranking.top(3).map(|it| it.player.0).collect();
    if best != [5, 4, 3] || ranking.rank(ClientId(1)) != Some(5) {
        return Err(format!("the ranking is {best:?}").into());
    }
    announce(cluster, &raiders, format!("ranking {best:?}"))?;
    Ok(format!(
        "gather, fight, end by deadline; best {best:?}, announced to the raid's topic"
    ))
}

/// Subscribes `raiders` to a topic, and casts `text` to it.
fn announce(cluster: &Cluster, raiders: &[ClientId], text: String) -> Outcome<()> {
    let topic = Name::new("raid")?;
    for player in raiders {
        let at = server_of(player.0);
        let session = claim(cluster, at, *player, MailSeq(0))?;
        cluster.wait(
            "the claim is granted",
            |_, report| matches!(report, Report::Event(NodeEvent::Claimed(it)) if *it == session),
        )?;
        if !cluster.ask(at, move |now, node| node.subscribe(now, session, topic))? {
            return Err("the subscription was refused".into());
        }
    }
    let expected = text.clone();
    let sent = cluster.ask(0, move |now, node| node.cast(now, topic, text.into()))?;
    sent.map_err(|error| error.to_string())?;
    let mut reached = BTreeSet::new();
    cluster.wait("the raid has the ranking", |_, report| {
        if let Report::Message(claim, PlayerMessage::Cast { body, .. }) = report
            && body[..] == *expected.as_bytes()
        {
            reached.insert(claim.player());
        }
        reached.len() == raiders.len()
    })
}
