//! What each stage of a query has sent, and by which way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::common::human_readable_size;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::NetworkBoundaryExt as _;

/// The prefix of the metrics that count streams by scheme.
const STREAMS: &str = "dipc_streams_";

/// One line for each stage whose partitions another one has read.
pub fn report(plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut lines = BTreeMap::new();
    visit(plan, &mut lines);
    lines.into_values().collect::<Vec<_>>().join("\n")
}

fn visit(plan: &Arc<dyn ExecutionPlan>, lines: &mut BTreeMap<usize, String>) {
    if let Some(boundary) = plan.as_network_boundary() {
        let stage = boundary.input_stage();
        let mut sums = BTreeMap::<String, usize>::new();
        for metric in plan.metrics().iter().flat_map(|metrics| metrics.iter()) {
            let value = metric.value();
            *sums.entry(value.name().to_owned()).or_default() += value.as_usize();
        }
        lines.insert(stage.num(), line(stage.num(), stage.task_count(), &sums));
    }
    plan.children()
        .into_iter()
        .for_each(|child| visit(child, lines));
}

fn line(stage: usize, tasks: usize, sums: &BTreeMap<String, usize>) -> String {
    let sum = |name: &str| sums.get(name).copied().unwrap_or(0);
    let bytes = |name: &str| human_readable_size(sum(name));
    let mut line = format!(
        "stage {stage}: tasks {tasks}, rows {}, bytes {}: lent {}, received {}, copied {}",
        sum("output_rows"),
        bytes("bytes_transferred"),
        bytes("dipc_bytes_lent"),
        bytes("dipc_bytes_received"),
        bytes("dipc_bytes_copied"),
    );
    for (name, count) in sums {
        if let Some(scheme) = name.strip_prefix(STREAMS) {
            let _ = write!(line, "; {scheme} {count} streams");
        }
    }
    match sum("local_connections_used") {
        0 => {}
        count => {
            let _ = write!(line, "; {count} tasks read in their own process");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `--explain`: the ways are those that were taken.
    #[test]
    fn a_line_names_bytes_and_ways() {
        let sums = [
            ("output_rows", 7),
            ("bytes_transferred", 4096),
            ("dipc_bytes_lent", 4000),
            ("dipc_bytes_received", 96),
            ("dipc_streams_shm", 3),
            ("dipc_streams_tcp", 1),
        ];
        let sums = sums.map(|(name, sum)| (name.to_owned(), sum)).into();
        assert_eq!(
            line(2, 4, &sums),
            "stage 2: tasks 4, rows 7, bytes 4.0 KB: lent 3.9 KB, received 96.0 B, copied 0.0 B; \
             shm 3 streams; tcp 1 streams"
        );
    }
}
