#!/usr/bin/env bash
# Writes src/bindings.rs and src/functions.rs anew from UCX's headers. Run by hand, on x86-64, when
# libdipc needs more of UCX; building needs none of this.
#
#   apt-get install libucx-dev libclang1 libclang-common-14-dev && cargo install bindgen-cli
#   crates/ucx1-sys/generate.sh [INCLUDE_DIR]
#
# The headers must be of an old UCX (Debian 12's 1.13): newer ones have fields that older libraries do
# not know. Comments are left out, so that nothing but the interface is taken over.
set -euo pipefail
cd "$(dirname "$0")"
include=${1:-/usr/include}

functions=(
  # Library and configuration
  ucp_get_version ucp_get_version_string ucp_lib_query
  ucp_config_read ucp_config_modify ucp_config_release
  # Context and worker
  ucp_init_version ucp_cleanup ucp_context_query ucp_context_print_info
  ucp_worker_create ucp_worker_destroy ucp_worker_query ucp_worker_progress ucp_worker_get_efd
  ucp_worker_arm ucp_worker_signal ucp_worker_print_info ucp_worker_flush_nbx ucp_worker_fence
  # Connections
  ucp_listener_create ucp_listener_destroy ucp_listener_query ucp_listener_reject
  ucp_conn_request_query
  ucp_ep_create ucp_ep_close_nbx ucp_ep_flush_nbx ucp_ep_query ucp_ep_print_info
  # Memory
  ucp_mem_map ucp_mem_unmap ucp_mem_query ucp_rkey_pack ucp_rkey_buffer_release
  ucp_ep_rkey_unpack ucp_rkey_destroy ucp_rkey_ptr ucp_get_nbx ucp_put_nbx
  # Messages
  ucp_tag_send_nbx ucp_tag_send_sync_nbx ucp_tag_recv_nbx ucp_tag_probe_nb ucp_tag_msg_recv_nbx
  ucp_worker_set_am_recv_handler ucp_am_send_nbx ucp_am_recv_data_nbx ucp_am_data_release
  ucp_request_check_status ucp_request_cancel ucp_request_free
  # Status and log, from libucs
  ucs_status_string ucs_log_push_handler ucs_log_pop_handler
)
# What no signature mentions: the enumerations behind masks and flags, which are plain integers there.
types=('ucp_[a-z_]+_field' ucp_feature ucp_dt_type ucp_ep_params_flags_field 'ucp_ep_close_.*'
  ucp_err_handling_mode_t ucp_am_cb_flags ucp_send_am_flags ucp_cb_param_flags ucp_op_attr_t
  ucp_am_recv_attr_t ucp_wakeup_event_types ucs_memory_type ucs_log_level_t)
constants=('UCP_MEM_MAP_.*' 'UCP_ENTITY_NAME_MAX')

join() {
  local IFS='|'
  printf '%s' "$*"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#include <ucp/api/ucp.h>\n#include <ucs/debug/log_def.h>\n' >"$work/ucx.h"

# What belongs to libc comes from libc; a va_list is the pointer that log.rs explains.
bindgen "$work/ucx.h" --output "$work/all.rs" \
  --rust-target 1.85 --rust-edition 2024 --no-doc-comments --merge-extern-blocks --formatter rustfmt \
  --default-enum-style consts --no-prepend-enum-name --with-derive-default \
  --blocklist-type '(sockaddr.*|FILE|_IO_.*|socklen_t|sa_family_t|va_list|__va_list_tag|__(gnuc|builtin)_va_list|__off(64)?_t)' \
  --raw-line 'use libc::{sockaddr, sockaddr_storage, socklen_t};' \
  --raw-line 'pub type __va_list_tag = ::std::os::raw::c_void;' \
  --allowlist-function "$(join "${functions[@]}")" \
  --allowlist-type "$(join "${types[@]}")" \
  --allowlist-var "$(join "${constants[@]}")" \
  -- -I"$include"

note='// Written by generate.sh. Do not edit.'
# bindgen does not know that libc's structs are plain data. UNKNOWN, the first number after the known kinds, is a kind of memory in newer libraries.
{
  echo "$note"
  sed -e '/^unsafe extern "C" {$/,/^}$/d' -e '/UCS_MEMORY_TYPE_\(LAST\|UNKNOWN\)/d' \
    -e '/^#\[allow(/d' \
    -e '/^#\[repr(C)\]$/{n;s/^pub struct/#[derive(Debug, Copy, Clone)]\n&/}' "$work/all.rs"
} >src/bindings.rs
{
  echo "$note"
  sed -n '/^unsafe extern "C" {$/,/^}$/p' "$work/all.rs" | sed 's/^unsafe extern "C" {$/functions! {/'
} >src/functions.rs
cargo fmt --package libdipc-ucx-sys
