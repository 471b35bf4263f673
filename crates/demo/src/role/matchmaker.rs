//! The matchmaker: assigns seats by its HTTP edge, on the game server that it starts.

use std::time::Duration;

use matchmaker_core::{Config, Rule, TeamSize};

use super::{EventWriter, Failure, Role, RunOptions};
use crate::keyring;
use crate::message::{ChildCommand, ChildEvent};
use crate::plan::APP;
use daemon::allocator::{ChildOutput, LocalProcessConfig, PortRange};
use daemon::control::ParentPipe;
use daemon::edge::{EdgeConfig, Transport};
use daemon::role::matchmaker::{MatchmakerOptions, MatchmakerProcess};

/// Serves until the parent closes the pipe. The game server ends with it.
pub(super) fn run(options: &RunOptions) -> Result<(), Failure> {
    let parent: ParentPipe<ChildCommand> = ParentPipe::open()?;
    let (events, writer) = EventWriter::start()?;
    let plan = options.plan();
    let identity = keyring::identity(&options.directory, "matchmaker")?;
    let join_file = keyring::join_file(&options.directory)?;
    let players = u8::try_from(plan.options().players)?;
    let matchmaker = MatchmakerProcess::start(MatchmakerOptions {
        identity: &identity,
        join_file: &join_file,
        app_id: APP.0,
        rule: Rule::TeamSize(TeamSize::new(players, 1)?),
        config: Config::default(),
        pool: Some(pool(options)?),
        edge: EdgeConfig::new(plan.edge(), Transport::PlainHttp),
    })?;
    events.send(ChildEvent::Ready);
    while parent.next(Duration::ZERO).is_ok() {
        matchmaker.wait(PATIENCE)?;
    }
    matchmaker.shutdown(LINGER);
    drop(events);
    // Nothing is left to write, or the pipe is closed.
    drop(writer.join());
    Ok(())
}

/// One game server: this program again. It writes its events to the same pipe as this process.
fn pool(options: &RunOptions) -> Result<LocalProcessConfig, Failure> {
    let server = options.plan().server();
    let ports = PortRange::new(server.port(), server.port()).ok_or("the server has no port")?;
    let arguments = Role::GameServer(options.clone()).arguments();
    Ok(LocalProcessConfig {
        output: ChildOutput::Inherit,
        ..LocalProcessConfig::new(
            std::env::current_exe()?,
            arguments.into_iter().map(Into::into).collect(),
            vec![keyring::key_path(&options.directory, "game")],
            keyring::join_path(&options.directory),
            (server.ip(), ports),
        )
    })
}

/// Interval of checks that the parent is there.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time to close the link to the hub.
const LINGER: Duration = Duration::from_millis(200);
