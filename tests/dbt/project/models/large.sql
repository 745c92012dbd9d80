{{ config(materialized='ephemeral') }}
select * from {{ ref('sales') }} where total >= 20
