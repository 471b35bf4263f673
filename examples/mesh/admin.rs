//! The admin of the demonstration: the key, and the signed document which lists the games.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use daemon::relay::sandbox::Sandbox;
use daemon::relay::{FileAdmin, FileRole};
use serde_json::{Value, json};

/// Creates the admin's key and configures each node to trust it and to open an admin interface.
/// With `bootstrap`, each node knows only that node; otherwise it knows all. Returns the key's
/// document entry.
pub(crate) fn found(
    sandbox: &mut Sandbox,
    nodes: usize,
    bootstrap: Option<usize>,
) -> io::Result<Value> {
    let key = sandbox.directory().join(KEY);
    let shown = run(tickwire().args(["key", "new"]).arg(&key))?;
    let public = shown.split_whitespace().find(|word| word.len() == 130);
    let admins = json!({"threshold": 1, "keys": [public.unwrap_or_default()]});
    let known = bootstrap.and_then(|node| sandbox.config(node));
    let known = known.map(|config| config.listen);
    for node in 0..nodes {
        let Some(config) = sandbox.config_mut(node) else {
            continue;
        };
        let ip = config.listen.ip();
        let is_entry = config.roles.contains(&FileRole::Entry);
        config.members = None;
        config
            .bootstrap
            .retain(|node| known.is_none_or(|known| node.address == known));
        config.signed = Some(serde_json::from_value(json!({
            "network": NETWORK,
            "admins": admins,
            "store": format!("{}.signed", config.name),
            "listen": if is_entry { vec![ip] } else { Vec::new() },
        }))?);
        config.admin = Some(FileAdmin {
            listen: SocketAddr::new(ip, ADMIN_PORT),
            token_file: format!("{}.token", config.name).into(),
        });
    }
    Ok(admins)
}

/// Signs a document with these games and sends it to a node.
pub(crate) fn publish(
    sandbox: &Sandbox,
    node: usize,
    version: u64,
    (admins, games): (&Value, &[Value]),
) -> io::Result<String> {
    let config = sandbox.config(node).ok_or(io::ErrorKind::NotFound)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let document = json!({
        "network": NETWORK,
        "version": version,
        "not_before": 0,
        "not_after": now.map_or(0, |now| now.as_secs()) + 86_400,
        "admins": admins,
        "games": games,
    });
    let directory = sandbox.directory();
    let path = directory.join("games.json");
    fs::write(&path, document.to_string())?;
    let http = SocketAddr::new(config.listen.ip(), ADMIN_PORT).to_string();
    let token = directory.join(format!("{}.token", config.name));
    let mut put = tickwire();
    put.args(["admin", "put"])
        .arg(&path)
        .arg("--key")
        .arg(directory.join(KEY));
    put.args(["--http", &http, "--token-file"]).arg(token);
    run(&mut put)
}

/// A game entry of the document. Any node with the matching role may be its entry or exit.
pub(crate) fn game(name: &str, protocol: &str, (port, server): (u16, SocketAddr)) -> Value {
    json!({
        "name": name,
        "protocol": protocol,
        "server": server,
        "listen_ports": [port],
        "entry": {"type": "all"},
        "exit": {"type": "all"},
    })
}

/// Runs the program `tickwire`, which is part of this executable.
fn tickwire() -> Command {
    let own = std::env::current_exe();
    let mut command = Command::new(own.as_deref().unwrap_or_else(|_| Path::new("tickwire")));
    command.arg("tickwire");
    command
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(said.trim_end()))
    }
}

const KEY: &str = "admin.pem";
const NETWORK: &str = "demo";
const ADMIN_PORT: u16 = 4_800;
