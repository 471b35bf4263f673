//! A process for statistics only, and a node whose threads count, on sockets and disk.

use std::path::{Path, PathBuf};

use hub::join_file::NetworkSecret;
use hub::stats::{Cell, QueryReason};
use hub::{Name, NodeConfig};
use servicer::{HubNode, StatsRecorders};
use wire::InstanceId;

use super::super::*;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Lists one hub for statistics, and one game node.
fn join_file(hub: &Identity, node: &Identity, address: Option<SocketAddr>) -> JoinFile {
    let mut file = JoinFile::new(NetworkSecret::new([7; 32]));
    let mut grant = Grant::new(Role::Stats, hub.node_id());
    if let Some(address) = address {
        grant = grant.with_address(&address.to_string());
    }
    file.grants.push(grant);
    file.grants.push(Grant::new(Role::GameNode, node.node_id()));
    file
}

fn start(hub: &Identity, node: &Identity, listen: SocketAddr, data: &Path) -> HubProcess {
    loop {
        let mut options = HubOptions::new(hub, join_file(hub, node, None), data);
        options.listen = Some(listen);
        match HubProcess::start(options) {
            // A process that another test starts keeps the port open between fork and exec.
            Err(failure) if failure.exit == Exit::Refused => std::thread::yield_now(),
            hub => return hub.unwrap(),
        }
    }
}

fn sum(reader: &StatsReader) -> f64 {
    let text = "sum of kill from now-1d to now step 1d";
    let text = text.replace(
        "to now",
        &format!("to {}", Clock::new().unix_time().as_secs() + 60),
    );
    let page = reader.query(&text, Duration::from_secs(60)).unwrap();
    let cells = page.rows.iter().map(|row| match row.cells[0] {
        Cell::Number(number) => number,
        Cell::Empty | Cell::Text(_) => panic!("no number"),
    });
    cells.sum()
}

fn wait_for_sum(reader: &StatsReader, expected: u64) {
    let expected = expected.to_string();
    loop {
        if sum(reader).to_string() == expected {
            return;
        }
        std::thread::yield_now();
    }
}

/// The process ends twice while a node counts: what it has confirmed stays, and the rest waits.
#[test]
fn h8_h11_the_statistics_process_restarts_and_each_count_is_stored_once() {
    let name = format!("tickwire-stats-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let mut ring = Ring::new();
    let hub_identity = Identity::generate(&mut ring).unwrap();
    let identity = Identity::generate(&mut ring).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut process = start(&hub_identity, &identity, any, &folder.0);
    let address = process.address();
    let file = join_file(&hub_identity, &identity, Some(address));
    let (recorders, inlet) = StatsRecorders::new();
    let node = HubNode {
        identity: &identity,
        join_file: &file,
        instance: InstanceId(1),
    };
    let node = node
        .spawn_statistics("statistics", NodeConfig::default(), inlet)
        .unwrap();
    let mut recorder = recorders.recorder(4, 16);
    let kill = recorder
        .register(Name::new("kill").unwrap().into())
        .unwrap();
    let mut counted = 0;
    for _start in 0..3 {
        for _tick in 0..50 {
            recorder.count(kill, 2);
            counted += 2;
            recorder.flush();
        }
        wait_for_sum(&process.statistics(), counted);
        let reader = process.statistics();
        process.shutdown(Duration::from_secs(10)).unwrap();
        let ended = reader.query("count of a from 0 to 1 step 1d", Duration::from_secs(10));
        assert_eq!(ended.unwrap_err().reason, QueryReason::Refused);
        // While the process is away, samples wait.
        for _tick in 0..50 {
            recorder.count(kill, 1);
            counted += 1;
            recorder.flush();
        }
        process = start(&hub_identity, &identity, address, &folder.0);
    }
    wait_for_sum(&process.statistics(), counted);
    drop(node);
    process.shutdown(Duration::from_secs(10)).unwrap();
}
