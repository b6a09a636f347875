//! Manual pages and shell completions, made of the command's own description.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueHint;
use clap_complete::{Shell, generate_to};

/// The subcommand, which packagers run.
#[derive(clap::Args)]
pub struct Args {
    /// An empty folder, or one that does not exist
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes `man1` and `completions` below the folder.
pub fn run<C: clap::CommandFactory>(args: &Args) -> Result<std::process::ExitCode> {
    let pages = folder(&args.folder, "man1")?;
    clap_mangen::generate_to(C::command(), &pages)
        .with_context(|| format!("cannot write manual pages into {}", pages.display()))?;
    let completions = folder(&args.folder, "completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut C::command(), "dipc", &completions)
            .with_context(|| format!("cannot write completions into {}", completions.display()))?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

fn folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let folder = parent.join(name);
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(folder)
}
