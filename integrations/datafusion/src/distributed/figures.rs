//! What the partitions of a network boundary have brought, as metrics of its plan node.

use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_distributed::{BytesCounterMetric, BytesMetricExt as _};
use dipc::StreamStats;

/// The metrics of the partitions that are asked for together.
#[derive(Clone)]
pub(super) struct Figures {
    metrics: ExecutionPlanMetricsSet,
    /// As the gRPC channel counts.
    transferred: BytesCounterMetric,
    lent: BytesCounterMetric,
    received: BytesCounterMetric,
    copied: BytesCounterMetric,
}

impl Figures {
    pub(super) fn new(metrics: ExecutionPlanMetricsSet) -> Self {
        let bytes = |name: &'static str| MetricBuilder::new(&metrics).bytes_counter(name);
        Self {
            transferred: bytes("bytes_transferred"),
            lent: bytes("dipc_bytes_lent"),
            received: bytes("dipc_bytes_received"),
            copied: bytes("dipc_bytes_copied"),
            metrics,
        }
    }

    /// A stream was opened by this scheme.
    pub(super) fn opened(&self, scheme: &str) {
        let name = format!("dipc_streams_{scheme}");
        MetricBuilder::new(&self.metrics)
            .global_counter(name)
            .add(1);
    }

    /// What a stream has brought since the last look at it.
    pub(super) fn add(&self, before: &StreamStats, now: &StreamStats) {
        let add = |to: &BytesCounterMetric, before: u64, now: u64| {
            let more = usize::try_from(now.saturating_sub(before)).unwrap_or(usize::MAX);
            to.add_bytes(more);
        };
        let all = |stats: &StreamStats| stats.bytes_lent.saturating_add(stats.bytes_received);
        add(&self.transferred, all(before), all(now));
        add(&self.lent, before.bytes_lent, now.bytes_lent);
        add(&self.received, before.bytes_received, now.bytes_received);
        add(&self.copied, before.bytes_copied, now.bytes_copied);
    }
}
